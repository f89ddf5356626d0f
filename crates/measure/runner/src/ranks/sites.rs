//! Where the ranks of a job run: each process looks at itself, and rank 0 gathers what all found.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use pathline_host::first_touch_domains;
use pathline_place::RankSite;
use pathline_schema::{RunNote, Topology};
use pathline_transport::LaunchedRank;
use serde::{Deserialize, Serialize};

use super::door;
use super::handshake::RankHello;
use super::job::{GATHER_TIMEOUT, MeetingPlace, RankJob, joined, me};
use super::side::version;
use crate::choice::LibraryChoice;
use crate::env::hostname;
use crate::link::{LineLink, LinkRecv};
use crate::probe::{self, DevicesAnswer, LibraryProbe, ProbeLimits};

/// How long a rank that has come may take to send its line, which it has ready by then.
const SITE_TIMEOUT: Duration = Duration::from_secs(20);

/// The ranks of a job, as far as this process knows them.
pub enum JobSites {
    /// All ranks, by number: this process is the first one, or alone.
    All {
        /// The ranks.
        sites: Vec<RankSite>,
        /// Their launcher; `None` for a process that was started alone.
        by: Option<&'static str>,
        /// Processes that came to the meeting place and were turned away.
        notes: Vec<RunNote>,
    },
    /// This rank alone, since the ranks could not meet.
    Apart {
        /// This process.
        site: Box<RankSite>,
        /// Why.
        error: anyhow::Error,
    },
    /// Rank 0 has this rank's site.
    Sent,
}

/// A rank's message to rank 0.
#[derive(Debug, Serialize, Deserialize)]
struct SiteMessage {
    site: RankSite,
    /// Whether its launcher states its number on its host.
    knows_local: bool,
}

/// From rank 0 to another rank.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum SiteOrder {
    /// All have come: send the site. A visitor that sends something before it is asked is turned away.
    Send,
    /// It has arrived, and the rank may end.
    Received,
}

/// Looks at this process, and at all others of its job if a launcher started several. GPUs are what
/// the runtime lists, asked in a child process.
/// Ranks that cannot meet are no error: each then has its own site alone.
pub fn job_sites(
    libraries: &LibraryChoice,
    rendezvous: Option<&str>,
    call_timeout: Option<Duration>,
) -> JobSites {
    let launched = me();
    let site = own_site(libraries, call_timeout, launched.as_ref());
    let by = launched.as_ref().map(|launched| launched.by);
    let message = |site| SiteMessage {
        site,
        knows_local: launched.as_ref().is_some_and(|launched| launched.local_rank.is_some()),
    };
    match joined(rendezvous) {
        Ok(None) => match launched.as_ref().filter(|launched| launched.size.is_none()) {
            Some(launched) => {
                let error = anyhow!("{} does not state the number of processes", launched.by);
                JobSites::Apart { site: Box::new(site), error }
            }
            None => JobSites::All { sites: vec![site], by, notes: Vec::new() },
        },
        Ok(Some((launched, RankJob::Joined { count, at, .. }))) => {
            let met = if launched.rank == 0 {
                lead(count, &at, &message(site.clone())).map(|(sites, notes)| JobSites::All {
                    sites,
                    by,
                    notes,
                })
            } else {
                follow(&at, &launched, count, &message(site.clone())).map(|()| JobSites::Sent)
            };
            met.unwrap_or_else(|error| JobSites::Apart { site: Box::new(site), error })
        }
        // A process of a launcher starts no job.
        Ok(Some(_)) => JobSites::All { sites: vec![site], by, notes: Vec::new() },
        Err(error) => JobSites::Apart { site: Box::new(site), error },
    }
}

fn own_site(
    libraries: &LibraryChoice,
    call_timeout: Option<Duration>,
    launched: Option<&LaunchedRank>,
) -> RankSite {
    // Before anything else: later memory may come from pages that were freed.
    let pages = first_touch_domains();
    let plain = pathline_topo::from_snapshot("live", &pathline_topo::live(Vec::new()));
    let limits = ProbeLimits::for_gpus(call_timeout, plain.gpus.len());
    let answer: Result<DevicesAnswer, _> = probe::ask(LibraryProbe::Devices, libraries, limits);
    let (mut topology, without, simulated) = match answer {
        Ok(DevicesAnswer { topology, without, simulated }) => (topology, without, simulated),
        Err(error) => (plain, Some(error.to_string()), false),
    };
    if without.is_some() {
        hide_all(&mut topology);
    }
    let site = RankSite::new(&topology, pages, &|name| std::env::var(name).ok());
    let rank = launched.map_or(0, |launched| launched.rank);
    RankSite {
        rank,
        local_rank: launched.and_then(|launched| launched.local_rank).unwrap_or(0),
        host: hostname(),
        pid: std::process::id(),
        without_gpu: without.filter(|_| site.gpus_on_bus > 0),
        simulated,
        ..site
    }
}

/// Without a runtime a process can use no GPU, whatever is on the bus.
fn hide_all(topology: &mut Topology) {
    let found = std::mem::take(&mut topology.gpus);
    topology.hidden.gpus.extend(found);
}

/// Rank 0: gathers the sites of all ranks, its own among them.
fn lead(count: u32, at: &MeetingPlace, own: &SiteMessage) -> Result<(Vec<RankSite>, Vec<RunNote>)> {
    let rank = own.site.rank;
    let gathered = std::thread::scope(|scope| {
        let gather = || door::gather(at, count, &version(), GATHER_TIMEOUT, &mut || None);
        let leader = std::thread::Builder::new().name("gather".into());
        let leader = leader.spawn_scoped(scope, gather).context("no thread can be started")?;
        // The first rank comes to itself, so that the door need not know who opened it.
        let hello = RankHello::new(rank, count, version(), hostname());
        let own_link = at.come(true, &hello);
        let gathered =
            leader.join().map_err(|_| anyhow!("the thread that gathers ranks failed"))??;
        own_link.map(|_| gathered)
    })?;
    let mut messages: BTreeMap<u32, SiteMessage> = BTreeMap::new();
    for (other, (mut link, hello)) in gathered.ranks {
        if other == rank {
            continue;
        }
        link.set_listen_timeout(SITE_TIMEOUT)?;
        let lost = || anyhow!("rank {other}, process {} on {}, left again", hello.pid, hello.host);
        link.send(&SiteOrder::Send).with_context(lost)?;
        let message = match link.listen::<SiteMessage>().with_context(lost)? {
            LinkRecv::Line(message) => message,
            LinkRecv::Timeout | LinkRecv::End => return Err(lost()),
        };
        // One that does not read it has nothing left to do.
        let _ = link.send(&SiteOrder::Received);
        messages.insert(other, message);
    }
    let knows_local = own.knows_local && messages.values().all(|message| message.knows_local);
    let mut sites: Vec<RankSite> = std::iter::once(own.site.clone())
        .chain(messages.into_iter().map(|(rank, message)| RankSite { rank, ..message.site }))
        .collect();
    sites.sort_by_key(|site| site.rank);
    // Hydra numbers the ranks of each line of its hosts, and a host may have several lines.
    let numbers: BTreeSet<(&str, u32)> =
        sites.iter().map(|site| (site.host.as_str(), site.local_rank)).collect();
    if !knows_local || numbers.len() < sites.len() {
        number_by_host(&mut sites);
    }
    Ok((sites, gathered.notes))
}

/// Numbers the ranks of each host in the order of their numbers in the job, as launchers do.
fn number_by_host(sites: &mut [RankSite]) {
    let mut next: BTreeMap<String, u32> = BTreeMap::new();
    for site in sites {
        let local = next.entry(site.host.clone()).or_default();
        site.local_rank = *local;
        *local += 1;
    }
}

/// Another rank: sends its site to rank 0, and waits until it has come.
fn follow(at: &MeetingPlace, launched: &LaunchedRank, count: u32, own: &SiteMessage) -> Result<()> {
    let hello = RankHello::new(launched.rank, count, version(), hostname());
    let mut link: LineLink = at.come(true, &hello).context("rank 0 was not reached")?;
    // It waits for ranks that come later.
    link.set_listen_timeout(GATHER_TIMEOUT + SITE_TIMEOUT)?;
    loop {
        match link.listen::<SiteOrder>().context("rank 0 cannot be read")? {
            LinkRecv::Line(SiteOrder::Send) => link.send(own).context("rank 0 does not read")?,
            LinkRecv::Line(SiteOrder::Received) => return Ok(()),
            LinkRecv::Timeout | LinkRecv::End => {
                return Err(anyhow!("rank 0 left before all ranks had come"));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(rank: u32, host: &str) -> SiteMessage {
        let site = RankSite { rank, host: host.to_owned(), ..RankSite::default() };
        SiteMessage { site, knows_local: false }
    }

    /// Hydra's numbers for the hosts a, b, a in a file: each line has one rank, number 0.
    #[test]
    fn numbers_that_repeat_on_a_host_are_counted_anew() {
        let at = MeetingPlace::Node(format!("pathline-test-numbers-{}", std::process::id()));
        let launched = |rank| LaunchedRank {
            rank,
            size: Some(3),
            local_rank: Some(0),
            local_size: Some(1),
            by: "Hydra",
        };
        let known = |rank, host| SiteMessage { knows_local: true, ..message(rank, host) };
        let followers: Vec<_> = [(1, "b"), (2, "a")]
            .into_iter()
            .map(|(rank, host)| {
                let (at, own) = (at.clone(), known(rank, host));
                std::thread::spawn(move || follow(&at, &launched(rank), 3, &own))
            })
            .collect();
        let (sites, _) = lead(3, &at, &known(0, "a")).unwrap();
        for follower in followers {
            follower.join().unwrap().unwrap();
        }
        assert_eq!(sites.iter().map(|site| site.local_rank).collect::<Vec<_>>(), [0, 0, 1]);
    }

    /// Three ranks of two hosts meet at one place; ranks 0 and 2 are the first and second of their host.
    #[test]
    fn rank_0_gathers_the_sites_of_all() {
        let at = MeetingPlace::Node(format!("pathline-test-sites-{}", std::process::id()));
        let launched = |rank| LaunchedRank {
            rank,
            size: Some(3),
            local_rank: None,
            local_size: None,
            by: "PMI",
        };
        let followers: Vec<_> = [(1, "b"), (2, "a")]
            .into_iter()
            .map(|(rank, host)| {
                let at = at.clone();
                let own = message(rank, host);
                std::thread::spawn(move || follow(&at, &launched(rank), 3, &own))
            })
            .collect();
        let (sites, notes) = lead(3, &at, &message(0, "a")).unwrap();
        for follower in followers {
            follower.join().unwrap().unwrap();
        }
        let found: Vec<_> = sites.iter().map(|s| (s.rank, s.host.as_str(), s.local_rank)).collect();
        assert_eq!(found, [(0, "a", 0), (1, "b", 0), (2, "a", 1)]);
        assert!(notes.is_empty());
    }
}
