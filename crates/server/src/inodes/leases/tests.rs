//! Which leases are granted and revoked, by changes of one and of several members, and what a kernel that does not answer delays.
use super::*;
use crate::Result;
use crate::tests::TestPeers;
use forebay_proto::Request;
use forebay_proto::call::Call;

const FILE: LeasedObject<'_> = LeasedObject::Attributes(Fid(7));
const OTHER: LeasedObject<'_> = LeasedObject::Attributes(Fid(8));

/// Which kernels had to drop what, in order.
type Dropped = Arc<Mutex<Vec<(Member, KernelInvalidation)>>>;

/// Leases of member 0 in a service of so many; `answers`: what the others say.
fn leases(
    members: u16,
    answers: impl Fn() -> Result<()> + Send + Sync + 'static,
) -> (LeaseTable, Dropped) {
    let dropped = Dropped::default();
    let heard = dropped.clone();
    let peers = TestPeers {
        member: 0,
        members,
        deadline: Duration::from_secs(30),
        exchange: move |to, request| {
            if let Request::Kernel(what) = request {
                heard.lock().push((to, what));
            }
            Ok(KernelInvalidation::encode_reply(answers()))
        },
    };
    let leases = LeaseTable::default();
    leases.connect(Arc::new(peers));
    (leases, dropped)
}

fn attributes_of(fid: u64) -> KernelInvalidation {
    KernelInvalidation::Attributes(Fid(fid))
}

#[test]
fn a_service_of_one_member_leases_nothing() {
    let (alone, _) = leases(1, || Ok(()));
    assert!(!alone.grant(FILE, 0));
    assert!(
        !LeaseTable::default().grant(FILE, 0),
        "nor one without peers"
    );
}

#[test]
fn a_change_has_all_kernels_drop_a_lease_but_its_own() {
    let (leases, dropped) = leases(4, || Ok(()));
    for member in [1, 2, 3] {
        assert!(leases.grant(FILE, member));
    }
    assert!(leases.grant(OTHER, 1));
    drop(leases.begin_change(Some(2), [FILE]));
    assert_eq!(
        *dropped.lock(),
        [(1, attributes_of(7)), (3, attributes_of(7))]
    );
    // They have none any more.
    drop(leases.begin_change(Some(2), [FILE]));
    assert_eq!(dropped.lock().len(), 2);
    // Member 2 is told when another one changes it.
    drop(leases.begin_change(None, [FILE, OTHER]));
    assert_eq!(
        dropped.lock()[2..],
        [(2, attributes_of(7)), (1, attributes_of(8))]
    );
}

#[test]
fn nothing_is_leased_while_it_changes() {
    let (leases, _) = leases(2, || Ok(()));
    let name = LeasedObject::Entry(Fid(1), b"name");
    let first = leases.begin_change(Some(1), [FILE, name]);
    let second = leases.begin_change(Some(1), [FILE]);
    assert!(!leases.grant(FILE, 0) && !leases.grant(FILE, 1) && !leases.grant(name, 0));
    assert!(leases.grant(LeasedObject::Entry(Fid(1), b"another"), 0));
    drop(first);
    assert!(!leases.grant(FILE, 0) && leases.grant(name, 0));
    drop(second);
    assert!(leases.grant(FILE, 0));
}

/// Whether each of the members 1 and 2 gets a lease at this time.
fn granted(leases: &LeaseTable, at: Instant) -> [bool; 2] {
    [1, 2].map(|member| leases.grant_at(at, FILE, member))
}

#[test]
fn what_a_kernel_had_to_drop_is_leased_at_once_to_the_member_that_alone_changes_it() {
    let (leases, dropped) = leases(3, || Ok(()));
    let start = Instant::now();
    assert!(leases.grant_at(start, FILE, 1));
    for _ in 0..2 {
        drop(leases.begin_change_at(start, Some(2), [FILE]));
        assert_eq!(granted(&leases, start), [false, true]);
    }
    assert_eq!(dropped.lock().len(), 1, "the second change bothers nobody");
    // Two that change it in turn: none of them.
    drop(leases.begin_change_at(start, Some(1), [FILE]));
    assert_eq!(granted(&leases, start), [false, false]);
    drop(leases.begin_change_at(start, Some(1), [FILE]));
    assert_eq!(granted(&leases, start), [false, false]);
}

#[test]
fn what_a_kernel_had_to_drop_is_leased_to_all_when_it_has_not_been_changed_for_a_while_longer_each_time()
 {
    let (leases, dropped) = leases(3, || Ok(()));
    let (mut now, mut quiet) = (Instant::now(), MIN_QUIET);
    assert_eq!(granted(&leases, now), [true, true]);
    for round in 1..=10 {
        // Both change it, so that neither is the only one.
        for by in [1, 2] {
            drop(leases.begin_change_at(now, Some(by), [FILE]));
        }
        assert_eq!(dropped.lock().len(), 2 * round, "each kernel once");
        now += quiet - Duration::from_millis(1);
        assert_eq!(granted(&leases, now), [false, false], "round {round}");
        // One more change: it begins anew.
        drop(leases.begin_change_at(now, None, [FILE]));
        now += quiet - Duration::from_millis(1);
        assert_eq!(granted(&leases, now), [false, false], "round {round}");
        now += Duration::from_millis(1);
        assert_eq!(granted(&leases, now), [true, true], "round {round}");
        quiet = MAX_QUIET.min(2 * quiet);
    }
}

#[test]
fn who_alone_changes_what_was_quiet_keeps_its_lease() {
    let (leases, _) = leases(3, || Ok(()));
    let start = Instant::now();
    assert_eq!(granted(&leases, start), [true, true]);
    for by in [1, 2] {
        drop(leases.begin_change_at(start, Some(by), [FILE]));
    }
    let later = start + MIN_QUIET * 4;
    for _ in 0..2 {
        drop(leases.begin_change_at(later, Some(2), [FILE]));
        assert_eq!(granted(&leases, later), [false, true]);
    }
}

#[test]
fn a_kernel_that_does_not_answer_delays_a_change_until_its_lease_has_run_out() {
    let (leases, dropped) = leases(2, || Err(rustix::io::Errno::IO.into()));
    assert!(leases.grant(FILE, 1));
    let began = Instant::now();
    drop(leases.begin_change(Some(0), [FILE]));
    assert!(began.elapsed() >= LEASE_TERM);
    assert_eq!(dropped.lock().len(), 1);
}

#[test]
fn members_whose_numbers_are_alike_modulo_64_are_told_of_each_others_leases() {
    let (leases, dropped) = leases(70, || Ok(()));
    assert!(leases.grant(FILE, 1));
    drop(leases.begin_change(Some(65), [FILE]));
    assert_eq!(*dropped.lock(), [(1, attributes_of(7))]);
}
