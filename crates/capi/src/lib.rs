//! `libforebay`: the client library for C, C++ and Fortran.
//!
//! Knows how C passes things: pointers, lengths, negative error numbers. Everything else is `forebay_client`'s. The interface is
//! `include/forebay.h`, which a test makes of the functions here and compares; what a function does is said once, in the comment
//! that becomes the header's.
//!
//! | module | what |
//! |---|---|
//! | `call` | the edge: results, the message of a failure, checked pointers |
//! | `connection`, `file`, `lock`, `dir`, `names`, `team` | functions, by what their first argument is |
//! | `stat` | the attributes of a file as C sees them |
//!
//! Invariants: no panic leaves a function; each becomes `-EIO` with a message. A pointer that this library gave is valid until the
//! call that is documented to end it. A null pointer where there must be none is `-EINVAL`.

mod call;
mod connection;
mod dir;
mod file;
mod lock;
mod names;
mod stat;
mod team;
