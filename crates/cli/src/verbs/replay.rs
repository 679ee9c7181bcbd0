//! stub
use crate::fail::Result;
pub fn run(_a: &crate::args::ReplayArgs, _c: Option<&std::path::Path>) -> Result {
    Ok(())
}
