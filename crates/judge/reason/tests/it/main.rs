//! Pastes whose cause is known, and worlds whose outputs the tests write themselves.

mod acceptance;
mod apart;
mod failures;
mod forms;
mod named_nodes;
mod no_accusation;
mod plain_tables;
mod public_texts;
mod round_trip;
mod round_trip_collectives;
mod round_trip_files;
mod round_trip_logs;
mod round_trip_messages;
mod round_trip_network;
mod round_trip_wiring;
mod usual_shares;
mod worlds;
