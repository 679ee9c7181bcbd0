//! Numbers of intents that no coordinator sends, and looks that never end: neither stops a member, nor takes all its time.
use super::net::*;
use crate::meta::attempt::AttemptError;
use crate::meta::proto::{IntentId, MetaReply, MetaRequest, Part};
use crate::*;
use rustix::io::Errno;
use std::time::Duration;

fn finish(number: u64, below: u64) -> MetaRequest {
    MetaRequest::Finish {
        intent: IntentId {
            coordinator: 0,
            number,
        },
        below,
        part: Part::default(),
    }
}

fn prepare(number: u64, below: u64) -> MetaRequest {
    MetaRequest::Prepare {
        intent: IntentId {
            coordinator: 0,
            number,
        },
        below,
        needs: Vec::new(),
    }
}

#[test]
fn a_message_from_the_future_ends_no_intent() {
    let net = Net::new(3);
    // An intent is live when a message of it is sent, so all under `below` cannot include itself.
    for message in [finish(1, 4_194_303), prepare(1, 2)] {
        let error = net.meta(1).handle(message.clone()).unwrap_err();
        assert!(
            matches!(&error, Error::Refused(text) if text.contains("member 0")),
            "{message:?}: {error}"
        );
    }
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
    assert!(matches!(
        net.meta(1).handle(finish(9, 7)),
        Ok(MetaReply::Done)
    ));
    for number in [9, 6] {
        let error = net.meta(1).handle(prepare(number, 1)).unwrap_err();
        assert!(matches!(error, Error::Refused(_)), "{error}");
    }
    assert!(matches!(
        net.meta(1).handle(prepare(8, 7)),
        Ok(MetaReply::Done)
    ));
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
    for message in [finish(3, 1), prepare(3, 1)] {
        message.check_sender(0).unwrap();
        let error = message.check_sender(1).unwrap_err();
        assert!(matches!(error, Error::Refused(_)), "{error}");
    }
    let any = MetaRequest::GetAttr { fid: Fid::ROOT };
    any.check_sender(1).unwrap();
}
