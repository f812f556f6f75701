//! Which linker arguments does a Node.js addon need on this platform?

fn main() {
    napi_build::setup();
}
