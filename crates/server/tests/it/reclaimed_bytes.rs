//! A node that remembers where bytes were, after those were freed, reads the newer ones: never zeros, never others.
use crate::common::*;
use forebay_server::SetAttr;

#[test]
fn a_cached_extent_of_freed_bytes_leads_to_the_new_ones() {
    let dir = scratch();
    let service = start(&dir, config(3));
    let (writer, reader) = (service.delegate(0), service.delegate(1));
    let (fid, handle) = create(&writer, "f");
    writer.write(handle, 0, &[1; 100_000], ROOT).unwrap();
    writer.flush(handle).unwrap();
    let open = reader.open(fid, READ).unwrap().handle;
    // Now the reader has the extents cached.
    assert_eq!(reader.read(open, 0, 100_000).unwrap()[..], [1; 100_000]);
    writer.write(handle, 0, &[2; 100_000], ROOT).unwrap();
    writer.flush(handle).unwrap();
    wait_until_idle(&service);
    assert_eq!(
        service.status().unwrap()[0].data_bytes,
        100_000,
        "the old bytes are given back"
    );
    // Other files take the room.
    for n in 0..4 {
        let (_, other) = create(&writer, &format!("other{n}"));
        writer.write(other, 0, &[9; 100_000], ROOT).unwrap();
        writer.release(other).unwrap();
    }
    assert_eq!(reader.read(open, 0, 100_000).unwrap()[..], [2; 100_000]);
    reader.release(open).unwrap();
    writer.release(handle).unwrap();
}

#[test]
fn a_cached_extent_of_a_truncated_file_reads_as_the_file_is_now() {
    let dir = scratch();
    let service = start(&dir, config(2));
    let (writer, reader) = (service.delegate(0), service.delegate(1));
    let (fid, handle) = create(&writer, "f");
    writer.write(handle, 0, &[7; 50_000], ROOT).unwrap();
    writer.flush(handle).unwrap();
    let open = reader.open(fid, READ).unwrap().handle;
    assert_eq!(reader.read(open, 0, 50_000).unwrap().len(), 50_000);
    let set = |size| SetAttr {
        size: Some(size),
        ..SetAttr::default()
    };
    writer
        .names
        .setattr(fid, &set(10_000), Some(handle), ROOT)
        .unwrap();
    wait_until_idle(&service);
    // The reader's view is from before the truncate; the bytes it names are gone, so it must look again.
    assert_eq!(reader.read(open, 20_000, 50_000).unwrap().len(), 0);
    writer
        .names
        .setattr(fid, &set(50_000), Some(handle), ROOT)
        .unwrap();
    assert_eq!(contents(&reader, fid)[10_000..], [0; 40_000]);
    reader.release(open).unwrap();
    writer.release(handle).unwrap();
}
