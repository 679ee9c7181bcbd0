//! Tests of the content side over several members.
use crate::{Error, Result};
use parking_lot::Mutex;

/// Cuts the work of one member off at its n-th step: that step and all later ones fail, as if the process had died.
#[derive(Default)]
pub(super) struct Faults {
    left: Mutex<Option<u64>>,
}

impl Faults {
    pub(super) fn step(&self, name: &'static str) -> Result<()> {
        match &mut *self.left.lock() {
            None => Ok(()),
            Some(0) => Err(Error::Refused(format!("cut off at: {name}"))),
            Some(left) => {
                *left -= 1;
                Ok(())
            }
        }
    }
}
