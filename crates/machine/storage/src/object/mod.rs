//! Object stores that speak the interface of Amazon S3, over HTTP, plain or with TLS: the blocks of a data
//! set are ranges of an object, parts of an upload, or objects.
//!
//! Signatures are those of `rusty-s3`, which does no I/O. Requests are this module's own: a worker keeps
//! one connection for each slot, and moves bytes between sockets and the memory of its slots by calls that
//! do not wait. A client library would put its own threads and buffers in between.

mod client;
mod connection;
mod endpoint;
mod engine;
mod job;
mod place;
mod pool;
pub(crate) mod reply;
mod small;
#[cfg(test)]
mod tests;
mod wire;

pub(super) use job::{LiveObjects, ObjectJob};
pub(super) use place::{BucketPlace, is_bucket};
pub(super) use small::LiveSmallObjects;
