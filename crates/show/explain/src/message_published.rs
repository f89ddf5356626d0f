//! Published values of message libraries for cases between processes.

use pathline_flow::RuntimeEnv;
use pathline_message::{MessageLibrary, exchange_of};
use pathline_published::{PublishedMetric, PublishedValue};
use pathline_schema::{CopyAgent, MessageOp, Transport};

use crate::run::{CaseQuantity, RunEntry, RunView};

impl RunView<'_> {
    /// The published value of a message case in a quantity, for the library that measured it.
    pub(crate) fn published_message(
        &self,
        entry: &RunEntry,
        quantity: CaseQuantity,
    ) -> Option<PublishedValue> {
        match quantity {
            CaseQuantity::Payload => self.published_exchange(entry, PublishedMetric::Bandwidth),
            CaseQuantity::StepUs => self.published_exchange(entry, PublishedMetric::Latency),
            CaseQuantity::Traffic | CaseQuantity::StepNs => None,
        }
    }

    /// The published value of a message case in the metric of a figure.
    pub(crate) fn published_exchange(
        &self,
        entry: &RunEntry,
        metric: PublishedMetric,
    ) -> Option<PublishedValue> {
        let wire = entry.case.timed.first()?.by.wire()?;
        // Published values of UCX are those of an MPI over it.
        let plain = wire.via != Transport::Ucx
            && entry.case.background.is_empty()
            && entry.case.cadence == pathline_schema::Cadence::Streaming;
        let by = self.message_library(wire, entry.engine()).filter(|_| plain)?;
        let (mut exchange, _) = exchange_of(entry.case, &self.journal.begin.ranks, by).ok()?;
        // Published rows do not state how many GPUs a process drove.
        exchange.start.one_process = false;
        self.published_table()?.lookup_exchange(&exchange, metric)
    }

    /// The library behind a message case as tables of published values name it; none of others.
    fn message_library(&self, wire: &MessageOp, engine: &str) -> Option<MessageLibrary> {
        if self.simulated().is_some() {
            return engine.split_once(": ").and_then(|(library, _)| library.parse().ok());
        }
        let members = &self.journal.begin.ranks;
        let recorded =
            members.iter().find_map(|m| m.ways.get(&wire.via)).map_or("", String::as_str);
        let text = format!("{recorded} {engine}").to_uppercase();
        let env = RuntimeEnv::from_env(&self.journal.begin.env);
        let by_default = env.sdma != Some(false) && env.peer_sdma != Some(false);
        let sdma = wire.agent.map_or(by_default, |agent| agent == CopyAgent::Engine);
        match wire.via {
            Transport::Mpi if text.contains("CRAY MPICH") => {
                Some(MessageLibrary::CrayMpich { sdma })
            }
            Transport::Mpi if text.contains("UCX") => Some(MessageLibrary::Ucx { sdma }),
            Transport::Ccl if text.contains("RCCL") => Some(MessageLibrary::Rccl),
            Transport::Ccl if text.contains("NCCL") => {
                Some(MessageLibrary::Nccl { nvls: env.nvls != Some(false) })
            }
            _ => None,
        }
    }
}
