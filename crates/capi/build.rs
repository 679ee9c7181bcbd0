//! Gives the shared library its soname: the version of its interface, raised when a program that was built before would break.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    if std::env::var("CARGO_CFG_TARGET_OS").as_deref() == Ok("linux") {
        println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libforebay.so.0");
    }
}
