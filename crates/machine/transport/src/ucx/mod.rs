//! UCX, bound at run time: messages by tag, and reads and writes of remote memory.

mod api;
mod build_facts;
mod engine_label;
mod exchange;
mod lane;
mod offer;
mod search;
mod settings;
#[cfg(test)]
mod tests;
mod worker;

use std::collections::BTreeMap;
use std::path::Path;
use std::rc::Rc;

use pathline_dylib::LibraryReport;
use pathline_hal::{
    CallError, CallResult, ExchangeId, ExchangeTable, FlowPart, RankBarrier, RepeatMode,
    TransportPort,
};
use pathline_schema::{Severity, Transport, UcxSetting, WireOp};

use exchange::UcxExchange;
use search::UcpLibrary;
use worker::UcxWorker;

/// A process's endpoint by libucp.
///
/// Its worker is created for the first case that needs it: UCX then patches the C library to track
/// memory, which must not affect measurements of the other transports of this process.
#[derive(Debug)]
pub(crate) struct UcxPort {
    /// Declared before the workers, so dropped first.
    bound: ExchangeTable<UcxExchange>,
    /// One worker for each requested setting, and one without any; with atomic operations, whose
    /// contexts may choose other transports, and without.
    workers: BTreeMap<(Option<UcxSetting>, bool), Rc<UcxWorker>>,
    ucp: UcpLibrary,
    /// UCX_ variables of the environment, which may change anything.
    settings: Vec<String>,
    /// Why nothing can be done any more.
    broken: Option<CallError>,
}

/// Opens libucp. `asked` is a file or folder and replaces the search.
///
/// # Errors
/// Why it cannot be used, and what to do.
pub(crate) fn open(asked: Option<&Path>) -> std::result::Result<UcxPort, String> {
    let ucp = search::open(asked)?;
    let text = |s: std::ffi::OsString| s.to_string_lossy().into_owned();
    let mut settings: Vec<String> = std::env::vars_os()
        .map(|(name, value)| (text(name), text(value)))
        .filter(|(name, _)| name.starts_with("UCX_"))
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    settings.sort();
    let (bound, workers, broken) = (ExchangeTable::default(), BTreeMap::new(), None);
    Ok(UcxPort { bound, workers, ucp, settings, broken })
}

/// The report of the search for libucp, with what its build lacks. Starts nothing.
pub(crate) fn library(asked: Option<&Path>) -> LibraryReport {
    let (ucp, mut report) = search::search(asked);
    if ucp.is_some() {
        report.notes = build_facts::notes();
    }
    report
}

impl UcxPort {
    fn worker(
        &mut self,
        others: usize,
        switch: Option<UcxSetting>,
        atomics: bool,
    ) -> CallResult<Rc<UcxWorker>> {
        if let Some(worker) = self.workers.get(&(switch, atomics)) {
            return Ok(Rc::clone(worker));
        }
        if switch.is_some() {
            // The first context loads the transports, whose variables are unknown before.
            self.worker(others, None, false)?;
        }
        let others = u32::try_from(others).unwrap_or(u32::MAX);
        let made = Rc::new(UcxWorker::new(&self.ucp, others, atomics, |config| {
            switch.map(|s| settings::set(&self.ucp, config, s, &self.settings)).transpose()
        })?);
        self.workers.insert((switch, atomics), Rc::clone(&made));
        Ok(made)
    }

    /// The error that ended the use of UCX, if one has.
    fn usable(&self) -> CallResult<()> {
        self.broken.clone().map_or(Ok(()), Err)
    }

    /// A failure leaves messages in flight, which cannot be cancelled. Their memory may be freed,
    /// so UCX must make no further progress in this process.
    fn end_after<T>(&mut self, did: CallResult<T>) -> CallResult<T> {
        did.map_err(|error| {
            let error = CallError { severity: Severity::Sticky, ..error };
            self.broken = Some(error.clone());
            error
        })
    }
}

impl Drop for UcxPort {
    fn drop(&mut self) {
        if self.broken.is_some() {
            let workers = std::mem::take(&mut self.workers);
            std::mem::forget((std::mem::take(&mut self.bound), workers));
        }
    }
}

impl TransportPort for UcxPort {
    fn via(&self) -> Transport {
        Transport::Ucx
    }

    fn library(&self) -> String {
        let file = self.ucp.path.display();
        let set = if self.settings.is_empty() { "" } else { ", with " };
        let inert = build_facts::inert_settings();
        let names: Vec<&str> = inert.iter().map(|setting| setting.name).collect();
        let without = if names.is_empty() { "" } else { UcxSetting::INERT };
        format!(
            "UCX {} ({file}){set}{}{without}{}",
            self.ucp.version,
            self.settings.join(" "),
            names.join(" ")
        )
    }

    fn bind(&mut self, parts: &[FlowPart], pace: RepeatMode) -> CallResult<(ExchangeId, Vec<u8>)> {
        self.usable()?;
        if pace == RepeatMode::Graph {
            let why = "UCX has no graphs";
            return Err(CallError::unsupported("bind", "a case by ucx", why));
        }
        let switch = parts.first().and_then(|part| part.wire.switch);
        if parts.iter().any(|part| part.wire.switch != switch) {
            let why = "concurrent parts share one context, which has one setting";
            return Err(CallError::unsupported("bind", "a case by ucx", why));
        }
        let mut messages = parts.iter().filter(|part| part.collective().is_none());
        if let Some(why) = messages.find_map(FlowPart::short_buffer) {
            return Err(CallError::unsupported("bind", "a case by ucx", why));
        }
        // Tags have 32 bits of the number: messages of 2^32 earlier exchanges are long gone.
        let serial = self.bound.next_id().0 as u32;
        let (exchange, offer) = if parts.iter().all(FlowPart::is_idle) {
            (UcxExchange::idle(parts.len(), pace), Vec::new())
        } else {
            let atomics = parts.iter().any(|part| matches!(part.wire.op, WireOp::Atomic(_)));
            let worker = self.worker(parts.len(), switch, atomics)?;
            let (exchange, offer) = UcxExchange::new(&worker, serial, parts, pace)?;
            (exchange, offer.write())
        };
        Ok((self.bound.insert(exchange), offer))
    }

    fn join(&mut self, id: ExchangeId, offers: &[Vec<u8>]) -> CallResult<()> {
        let exchange = self.bound.bound("join", id)?;
        let joined = exchange.join(offers);
        self.end_after(joined)
    }

    fn run(
        &mut self,
        id: ExchangeId,
        reps: u64,
        barrier: &dyn RankBarrier,
    ) -> CallResult<Vec<Vec<f64>>> {
        self.usable()?;
        let exchange = self.bound.bound("run", id)?;
        let ran = exchange.run(reps, barrier);
        match &ran {
            // No operation was in flight when a process missed the barrier.
            Err(error) if error.call == "meet" => ran,
            _ => self.end_after(ran),
        }
    }

    fn engine(&self, id: ExchangeId) -> String {
        let Some(exchange) = self.bound.get(id) else { return String::new() };
        match (exchange.engine(), exchange.set()) {
            ("", _) => String::new(),
            (engine, None) => format!("UCX {}: {engine}", self.ucp.version),
            (engine, Some(set)) => format!("UCX {} with {set}: {engine}", self.ucp.version),
        }
    }

    fn release(&mut self, id: ExchangeId) -> CallResult<()> {
        let exchange = self.bound.remove(id)?;
        let Some(error) = &self.broken else { return Ok(()) };
        // Operations in flight still use it and the memory of its parts.
        std::mem::forget(exchange);
        Err(error.clone())
    }
}
