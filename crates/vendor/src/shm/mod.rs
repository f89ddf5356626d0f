//! Processes of one node that share memory: where they meet, and the copies of ours between them.

mod meeting;
mod patience;
mod peer;
mod segment;

pub use meeting::{MeetingRoom, SharedMeeting};
