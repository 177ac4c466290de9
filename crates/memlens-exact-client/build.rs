//! Makes the linker refuse symbols that no DynamoRIO library has: the private loader would leave
//! them null and the target would crash.

fn main() {
    println!("cargo:rustc-link-arg-cdylib=-Wl,-z,defs");
}
