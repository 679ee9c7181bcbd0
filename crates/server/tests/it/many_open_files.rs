//! Ten thousand files open at once on one node.
use crate::common::*;

#[test]
fn ten_thousand_open_files_are_written_and_read() {
    let dir = scratch();
    let service = start(&dir, config(2));
    let delegate = service.delegate(0);
    let open: Vec<_> = (0..10_000)
        .map(|i| create(&delegate, &format!("f{i}")))
        .collect();
    for (i, (_, handle)) in open.iter().enumerate() {
        delegate
            .write(*handle, 0, &(i as u64).to_be_bytes(), ROOT)
            .unwrap();
    }
    assert_eq!(delegate.open_files(), 10_000);
    for (i, (_, handle)) in open.iter().enumerate() {
        assert_eq!(
            delegate.read(*handle, 0, 100).unwrap()[..],
            (i as u64).to_be_bytes()
        );
    }
    for (_, handle) in &open {
        delegate.release(*handle).unwrap();
    }
    assert_eq!(delegate.open_files(), 0);
    let there = service.delegate(1);
    for i in [0, 4321, 9999] {
        assert_eq!(contents(&there, open[i].0), (i as u64).to_be_bytes());
    }
}
