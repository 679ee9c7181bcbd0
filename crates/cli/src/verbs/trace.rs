//! stub
use crate::fail::Result;
pub fn generate(_a: &crate::args::GenArgs) -> Result {
    Ok(())
}
pub fn stats(_a: &crate::args::StatsArgs) -> Result {
    Ok(())
}
