//! Invalid intent numbers, and lookups that never end: neither stops a member, nor takes all its time.
use super::net::*;
use crate::meta::attempt::AttemptError;
use crate::*;
use forebay_proto::intents::{IntentId, IntentPart};
use forebay_proto::meta::{FinishIntent, HoldReply, PrepareIntent};
use rustix::io::Errno;
use std::time::Duration;

fn intent(number: u64) -> IntentId {
    IntentId {
        coordinator: 0,
        number,
    }
}

fn finish(number: u64, below: u64) -> FinishIntent {
    FinishIntent {
        intent: intent(number),
        below,
        part: IntentPart::default(),
        by: None,
    }
}

fn prepare(number: u64, below: u64) -> PrepareIntent {
    PrepareIntent {
        intent: intent(number),
        below,
        preconditions: Vec::new(),
        by: None,
    }
}

#[test]
fn a_message_from_the_future_ends_no_intent() {
    let net = Net::new(3);
    // An intent is live when a message of it is sent, so all under `below` cannot include itself.
    let meta = net.meta(1);
    let leaf = meta.leaf();
    let finished = leaf.finish_intent(0, finish(1, 4_194_303)).unwrap_err();
    let prepared = leaf.prepare_intent(0, prepare(1, 2)).unwrap_err();
    for error in [finished, prepared] {
        assert!(
            matches!(&error, Error::Refused(text) if text.contains("member 0")),
            "{error}"
        );
    }
    drop(meta);
    for _ in 0..3 {
        net.dir_at(Fid::ROOT, 1);
    }
    net.restart();
    net.dir_at(Fid::ROOT, 1);
    assert_eq!(net.check(), vec![]);
}

#[test]
fn an_intent_that_is_over_is_not_prepared_again() {
    let net = Net::new(2);
    let meta = net.meta(1);
    let leaf = meta.leaf();
    leaf.finish_intent(0, finish(9, 7)).unwrap();
    for number in [9, 6] {
        let error = leaf.prepare_intent(0, prepare(number, 1)).unwrap_err();
        assert!(matches!(error, Error::Refused(_)), "{error}");
    }
    let held = leaf.prepare_intent(0, prepare(8, 7)).unwrap();
    assert_eq!(held, HoldReply::Held);
}

#[test]
fn what_changes_at_every_look_is_looked_at_with_pauses() {
    let net = Net::new(1);
    net.wait_at_most(Duration::from_millis(200));
    let mut looks = 0u32;
    let result = net.meta(0).operations.retry(|| {
        looks += 1;
        Err::<(), _>(AttemptError::Changed)
    });
    assert_eq!(errno(result), Errno::BUSY);
    // The shortest pause is half a millisecond, and a slow machine only looks less often.
    assert!(looks < 500, "{looks} looks");
}

#[test]
fn only_its_coordinator_speaks_of_an_intent() {
    let net = Net::new(2);
    let meta = net.meta(1);
    let leaf = meta.leaf();
    let refused = [
        leaf.finish_intent(1, finish(3, 1)),
        leaf.prepare_intent(1, prepare(3, 1)).map(drop),
    ];
    for refused in refused {
        assert!(matches!(refused, Err(Error::Refused(_))), "{refused:?}");
    }
    leaf.prepare_intent(0, prepare(3, 1)).unwrap();
    leaf.finish_intent(0, finish(3, 1)).unwrap();
}
