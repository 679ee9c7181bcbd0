//! What is of the link alone: clients that die, stop or say nonsense, servers that end, forks, limits.
mod children;
mod ends;
mod forks;
mod limits;
mod locks;
mod restarts;
mod strangers;
