//! The attribute `user.forebay.codec` as programs of a mount set and see it, patterns of names, and encoding again.
use crate::common::{Place, assert_fails, forebay};
use forebay_testkit::turns;
use rustix::fs::XattrFlags;
use rustix::io::Errno;
use std::path::Path;

const CODEC: &str = "user.forebay.codec";

fn set(path: &Path, value: &str) -> rustix::io::Result<()> {
    rustix::fs::setxattr(path, CODEC, value.as_bytes(), XattrFlags::empty())
}

fn get(path: &Path) -> rustix::io::Result<String> {
    let mut value = [0; 200];
    let len = rustix::fs::getxattr(path, CODEC, &mut value[..])?;
    Ok(String::from_utf8(value[..len].to_vec()).unwrap())
}

fn names(path: &Path) -> Vec<String> {
    let mut list = [0; 1000];
    let len = rustix::fs::listxattr(path, &mut list[..]).unwrap();
    let names = list[..len].split(|b| *b == 0).filter(|n| !n.is_empty());
    let text = |name: &[u8]| String::from_utf8(name.to_vec()).unwrap();
    names.map(text).collect()
}

#[test]
fn it_is_set_inherited_listed_and_removed_through_mounts() {
    let _turn = turns::exclusive();
    let Some(place) = Place::mountable() else {
        return;
    };
    std::fs::write(
        place.path("c.toml"),
        "codec_names = [\"*.nc=field,f32\", \"ckpt/*=zstd\"]\ncodec_when = \"off\"\n",
    )
    .unwrap();
    let config = place.text("c.toml");
    place.mount_well(&["--nodes", "2", "--config", &config]);
    let (here, there) = (place.path("m/0"), place.path("m/1"));
    std::fs::create_dir(here.join("d")).unwrap();
    std::fs::write(here.join("d/plain"), "1").unwrap();
    std::fs::write(here.join("d/named.nc"), "1").unwrap();
    assert_eq!(get(&there.join("d/plain")), Err(Errno::NODATA));
    assert_eq!(get(&there.join("d/named.nc")).unwrap(), "field,f32");
    std::fs::create_dir(there.join("ckpt")).unwrap();
    std::fs::write(here.join("ckpt/1"), "1").unwrap();
    assert_eq!(get(&there.join("ckpt/1")).unwrap(), "zstd");

    assert_eq!(set(&here.join("d"), "fields"), Err(Errno::INVAL));
    assert_eq!(set(&here.join("d"), "field\n"), Err(Errno::INVAL));
    set(&here.join("d"), "field,stride=2,f64").unwrap();
    assert_eq!(get(&there.join("d")).unwrap(), "field,f64,stride=2");
    std::fs::create_dir_all(there.join("d/e/f")).unwrap();
    std::fs::write(there.join("d/e/f/g.nc"), "1").unwrap();
    let deep = here.join("d/e/f/g.nc");
    assert_eq!(get(&deep).unwrap(), "field,f64,stride=2");
    assert_eq!(names(&deep), [CODEC]);
    assert_eq!(get(&here.join("d/plain")), Err(Errno::NODATA));
    std::fs::rename(&deep, here.join("g")).unwrap();
    assert_eq!(get(&there.join("g")).unwrap(), "field,f64,stride=2");
    rustix::fs::removexattr(there.join("g"), CODEC).unwrap();
    assert_eq!(get(&here.join("g")), Err(Errno::NODATA));
    assert_eq!(names(&here.join("g")), [""; 0]);

    // Staging writes under another name first.
    std::fs::create_dir(place.path("from")).unwrap();
    for name in ["x.nc", "y.txt"] {
        std::fs::write(place.path("from").join(name), "12").unwrap();
    }
    let (from, to) = (place.text("from"), place.text("m/0/in"));
    let (code, out, err) = forebay(&["stage", "in", &from, &to]);
    assert_eq!(code, 0, "{out}{err}");
    assert_eq!(get(&there.join("in/x.nc")).unwrap(), "field,f32");
    assert_eq!(get(&there.join("in/y.txt")), Err(Errno::NODATA));
    place.umount_well();
}

#[test]
fn files_are_encoded_again_and_shown() {
    let _turn = turns::exclusive();
    let Some(place) = Place::mountable() else {
        return;
    };
    place.mount_well(&[]);
    let numbers: Vec<u8> = (0..1 << 18)
        .flat_map(|n| (n as f32 * 0.25).to_le_bytes())
        .collect();
    std::fs::create_dir(place.path("m/d")).unwrap();
    for name in ["m/d/a", "m/d/b"] {
        std::fs::write(place.path(name), &numbers).unwrap();
    }
    let file = place.text("m/d/a");
    set(Path::new(&file), "field,f32").unwrap();
    let (code, out, err) = forebay(&["fields", "recode", &file]);
    assert_eq!(code, 0, "{out}{err}");
    let start = format!("{file}: 1.0 MiB, stored as 1.0 MiB before and ");
    assert!(out.starts_with(&start), "{out}");
    let (code, out, _) = forebay(&["stat", &file, "--json"]);
    assert_eq!(code, 0);
    let shown: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!(shown["codec"], "field,f32");
    let field = &shown["storage"]["report"]["codecs"]["field"];
    assert_eq!(field["bytes"], 1 << 20, "{out}");
    assert!(field["stored"].as_u64().unwrap() < 1 << 18, "{out}");
    let (code, out, _) = forebay(&["stat", &file]);
    let lines: Vec<&str> = out.lines().collect();
    assert_eq!((code, lines[1]), (0, "codec: field,f32"), "{out}");
    assert!(lines[2].starts_with("encoded: 1.0 MiB -> "), "{out}");
    let (_, out, _) = forebay(&["status", &place.store(), "--json"]);
    let status: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!(status["members"][0]["encoded_from_bytes"], 1 << 20, "{out}");
    assert_eq!(std::fs::read(&file).unwrap(), numbers);

    let (code, out, err) = forebay(&["fields", "recode", "--json", &place.text("m/d")]);
    assert_eq!((code, out.lines().count()), (0, 2), "{out}{err}");
    for (line, name) in out.lines().zip(["m/d/a", "m/d/b"]) {
        let value: serde_json::Value = serde_json::from_str(line).unwrap();
        assert_eq!(value["file"], place.text(name));
        assert_eq!(value["bytes"], 1 << 20);
        for key in ["stored_before", "stored_after"] {
            assert!(value[key].is_u64(), "{value}");
        }
    }
    std::fs::write(place.path("elsewhere"), "x").unwrap();
    assert_fails(
        &forebay(&["fields", "recode", &place.text("elsewhere")]),
        2,
        &["elsewhere is not on a Forebay mount"],
    );
    assert_fails(
        &forebay(&["fields", "recode", &place.text("m/none")]),
        2,
        &["cannot read", "m/none"],
    );
    place.umount_well();
}

#[test]
fn a_pattern_that_is_none_is_named_at_the_start() {
    let place = Place::new();
    for (names, part) in [
        ("*.nc=field,f32; *.h5", "`*.h5`: write PATTERN=CODEC"),
        ("a[=raw", "`a[=raw`: invalid range pattern at character 2"),
        ("*=gzip", "`gzip` is not known in the codec hint"),
    ] {
        let refused = place.mount(&["--codec-names", names]);
        assert_fails(&refused, 2, &["--codec-names", part]);
    }
    assert_fails(
        &place.mount(&["--codec-when", "later"]),
        2,
        &["--codec-when", "auto, inline, settle or off"],
    );
}
