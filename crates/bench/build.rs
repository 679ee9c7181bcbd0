//! Makes the declarations of LevelDB's and RocksDB's C interfaces from their installed headers, and links the libraries.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    #[cfg(feature = "peers")]
    for library in ["leveldb", "rocksdb"] {
        let out = std::env::var("OUT_DIR").expect("cargo sets it");
        bindgen::builder()
            .header_contents("c.h", &format!("#include <{library}/c.h>"))
            .allowlist_function(format!("{library}_.*"))
            .generate()
            .unwrap_or_else(|e| panic!("{library}/c.h: {e}; `scripts/setup.sh peers` installs it"))
            .write_to_file(format!("{out}/{library}.rs"))
            .expect("cargo has made the directory");
        println!("cargo::rustc-link-lib={library}");
    }
}
