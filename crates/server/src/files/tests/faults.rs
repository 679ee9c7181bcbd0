//! Cutting the work of one member off between two steps.
use crate::{Error, Result};
use parking_lot::Mutex;

/// Cuts the work of one member off at its n-th step: that step and all later ones fail, as if the process had died.
#[derive(Default)]
pub(crate) struct Faults {
    left: Mutex<Option<u64>>,
    watch: Mutex<Option<Watch>>,
}

/// Is told of each step.
type Watch = Box<dyn Fn(&'static str) + Send>;

impl Faults {
    /// The next `steps` steps work, then none does.
    pub(crate) fn cut_after(&self, steps: u64) {
        *self.left.lock() = Some(steps);
    }
    /// Whether the cut was reached.
    pub(crate) fn reached(&self) -> bool {
        *self.left.lock() == Some(0)
    }
    /// Calls this at every step.
    pub(crate) fn watch(&self, watch: impl Fn(&'static str) + Send + 'static) {
        *self.watch.lock() = Some(Box::new(watch));
    }
    pub(crate) fn step(&self, name: &'static str) -> Result<()> {
        if let Some(watch) = &*self.watch.lock() {
            watch(name);
        }
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
