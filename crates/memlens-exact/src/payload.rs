//! DynamoRIO's libraries and the client, carried in the binary and unpacked when first needed.

use std::path::PathBuf;

use memlens_payload::{Carried, PayloadError};

include!(concat!(env!("OUT_DIR"), "/payload.rs"));

/// Where the libraries lie.
#[derive(Clone, Debug)]
pub struct Payload(memlens_payload::Payload);

impl Payload {
    /// See [`memlens_payload::Payload::unpack`].
    pub fn unpack() -> Result<Self, PayloadError> {
        let what = "the recording engine";
        let carried = Carried { what, prefix: "exact", content_hash: CONTENT_HASH, files: FILES };
        memlens_payload::Payload::unpack(&carried).map(Self)
    }

    /// DynamoRIO itself.
    pub fn engine(&self) -> PathBuf {
        self.0.file("libdynamorio.so")
    }

    /// The client.
    pub fn client(&self) -> PathBuf {
        self.0.file("libmemlens_exact_client.so")
    }
}
