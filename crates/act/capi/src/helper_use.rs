//! Helpers that other processes use.

use std::collections::BTreeMap;

use pathline_hal::{CallResult, GpuProcess, GpuUsers, Machine, Monitor};
use pathline_schema::{Bytes, GpuSet, MemKind, Ns, Place, Unit};

/// Time between two looks: one takes about a millisecond a GPU.
const LOOK_AGAIN: Ns = Ns(1e9);
/// Memory that this process allocates one after the other to find itself in the driver's list: multiples of the 2 MiB
/// in which drivers give memory out, and no sizes that another process is likely to take at the same time.
const MARKS: [Bytes; 2] = [Bytes::mib(38), Bytes::mib(74)];
/// Memory that a driver may add to an allocation, for its tables.
const MARK_EXTRA: u64 = 8 << 20;

/// Whether other processes copy to or from helpers. Relays then leave gaps for their copies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SharedHelpers {
    /// The library looks: a helper is shared if the driver lists another process on it, or cannot tell.
    #[default]
    Look,
    /// All are.
    Always,
    /// None is.
    Never,
}

/// What a look at the helpers found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct HelperLook {
    /// Helpers on which there are other processes.
    pub(crate) used: GpuSet,
    /// These, and helpers of which that is not known.
    pub(crate) perhaps: GpuSet,
}

/// What is known of the helpers' users.
pub(crate) struct HelperUse {
    choice: SharedHelpers,
    /// Opened by the first look.
    monitor: Option<Option<Box<dyn Monitor>>>,
    looked: Option<Ns>,
    /// This process's number in the driver's lists, where that is not its own.
    listed_as: Option<u32>,
}

impl HelperUse {
    pub(crate) fn new(choice: SharedHelpers) -> Self {
        Self { choice, monitor: None, looked: None, listed_as: None }
    }

    /// Lets the next look happen at once.
    pub(crate) fn forget(&mut self) {
        self.looked = None;
    }

    fn monitor(&mut self, machine: &Machine) -> Option<&dyn Monitor> {
        let open = || pathline_gpu::management().watch(&machine.topology.gpus);
        self.monitor.get_or_insert_with(open).as_deref()
    }

    /// The helpers that are shared; none if the last look is recent.
    pub(crate) fn look(
        &mut self,
        machine: &Machine,
        helpers: &[u32],
        now: Ns,
    ) -> Option<HelperLook> {
        if self.looked.is_some_and(|then| now - then < LOOK_AGAIN) {
            return None;
        }
        self.looked = Some(now);
        let (choice, listed_as) = (self.choice, self.listed_as);
        let monitor = match choice {
            SharedHelpers::Look => self.monitor(machine),
            SharedHelpers::Always | SharedHelpers::Never => None,
        };
        Some(shared_of(choice, helpers, |gpu| others(&monitor?.users(gpu)?, listed_as)))
    }

    /// Finds this process in the driver's list of a helper, if its number there is another one: the process whose
    /// memory grows and shrinks with two allocations. Frees memory, which waits for the GPU.
    pub(crate) fn find_itself(&mut self, machine: &Machine, helpers: &[u32]) {
        if self.choice != SharedHelpers::Look || self.listed_as.is_some() {
            return;
        }
        let Some(monitor) = self.monitor(machine) else { return };
        for &gpu in helpers {
            let Some(users) = monitor.users(gpu) else { continue };
            if users.others.is_some() {
                continue;
            }
            let look = || monitor.users(gpu).map(|users| users.listed).unwrap_or_default();
            if let Ok(lists) = mark(machine, gpu, look)
                && let Some(number) = marked_process(&lists)
            {
                self.listed_as = Some(number);
                self.looked = None;
                return;
            }
        }
    }
}

/// The processes of a GPU before, during and after two allocations.
fn mark(
    machine: &Machine,
    gpu: u32,
    look: impl Fn() -> Vec<GpuProcess>,
) -> CallResult<[Vec<GpuProcess>; 4]> {
    let place = Place::new(Unit::Gpu(gpu), MemKind::Vram);
    let [first, second] = MARKS;
    // The first allocation on a GPU creates its context.
    drop(machine.buffer(place, first)?);
    let before = look();
    let held = machine.buffer(place, first)?;
    let with_first = look();
    let more = machine.buffer(place, second)?;
    let with_both = look();
    drop((held, more));
    Ok([before, with_first, with_both, look()])
}

/// The only process in all lists whose memory grew by the first mark, then by the second, and shrank by both.
fn marked_process(lists: &[Vec<GpuProcess>; 4]) -> Option<u32> {
    let memory = |list: &Vec<GpuProcess>| -> BTreeMap<u32, u64> {
        list.iter().filter_map(|of| Some((of.number, of.memory?.0))).collect()
    };
    // Processes that all have one number cannot be distinguished.
    let numbers = lists.iter().all(|list| memory(list).len() == list.len());
    let [before, with_first, with_both, after] = lists.each_ref().map(memory);
    let [first, second] = MARKS;
    let grew = |from: Option<&u64>, to: Option<&u64>, by: Bytes| {
        let more = to.zip(from).and_then(|(to, from)| to.checked_sub(*from));
        more.is_some_and(|more| (by.0..by.0 + MARK_EXTRA).contains(&more))
    };
    let is_marked = |number: &&u32| {
        let of = |list: &BTreeMap<u32, u64>| list.get(number).copied();
        let [a, b, c, d] = [&before, &with_first, &with_both, &after].map(of);
        grew(a.as_ref(), b.as_ref(), first)
            && grew(b.as_ref(), c.as_ref(), second)
            && grew(d.as_ref(), c.as_ref(), Bytes(first.0 + second.0))
    };
    let mut marked = before.keys().filter(is_marked);
    let only = marked.next().filter(|_| numbers)?;
    marked.next().is_none().then_some(*only)
}

/// The number of other processes on a GPU; none if it is not known.
fn others(users: &GpuUsers, listed_as: Option<u32>) -> Option<u32> {
    let by_number = || {
        let own = listed_as?;
        Some(users.listed.iter().filter(|process| process.number != own).count() as u32)
    };
    users.others.or_else(by_number)
}

/// The helpers that are shared, by the number of other processes on each.
fn shared_of(
    choice: SharedHelpers,
    helpers: &[u32],
    others: impl Fn(u32) -> Option<u32>,
) -> HelperLook {
    let all = || helpers.iter().copied();
    match choice {
        SharedHelpers::Always => HelperLook { used: all().collect(), perhaps: all().collect() },
        SharedHelpers::Never => HelperLook { used: GpuSet::EMPTY, perhaps: GpuSet::EMPTY },
        SharedHelpers::Look => {
            let seen: Vec<(u32, Option<u32>)> = all().map(|gpu| (gpu, others(gpu))).collect();
            let those = |is_shared: fn(Option<u32>) -> bool| {
                seen.iter().filter(|(_, others)| is_shared(*others)).map(|(gpu, _)| *gpu).collect()
            };
            HelperLook {
                used: those(|others| others.is_some_and(|others| others > 0)),
                perhaps: those(|others| others != Some(0)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use pathline_flow::{MachineDesc, RuntimeEnv};
    use pathline_schema::{GpuFacts, GpuState};
    use pathline_sim::{SimOptions, machine_with};

    use super::*;

    #[test]
    fn helpers_with_other_processes_are_shared() {
        // GPU 1 has none, GPU 2 has two, GPU 3 does not say.
        let others = |gpu| [None, Some(0), Some(2), None][gpu as usize];
        let shared = |choice| {
            let HelperLook { used, perhaps } = shared_of(choice, &[1, 2, 3], others);
            (used, perhaps)
        };
        let (two, three) = (GpuSet::EMPTY.with(2), GpuSet::EMPTY.with(2).with(3));
        assert_eq!(shared(SharedHelpers::Look), (two, three));
        let all = GpuSet::EMPTY.with(1).with(2).with(3);
        assert_eq!(shared(SharedHelpers::Always), (all, all));
        assert_eq!(shared(SharedHelpers::Never), (GpuSet::EMPTY, GpuSet::EMPTY));
    }

    fn process(number: u32, mib: u64) -> GpuProcess {
        GpuProcess { number, memory: Some(Bytes::mib(mib)) }
    }

    /// 38 and 74 MiB, of which the driver makes 40 and 74.
    #[test]
    fn a_process_is_known_by_the_memory_that_it_marks() {
        let lists = |own: [u64; 4], other: [u64; 4]| {
            [0, 1, 2, 3].map(|nth: usize| vec![process(70, own[nth]), process(71, other[nth])])
        };
        let marked = [500, 540, 614, 500];
        assert_eq!(marked_process(&lists(marked, [900; 4])), Some(70));
        // Another one takes and returns memory in between.
        assert_eq!(marked_process(&lists(marked, [900, 940, 940, 900])), Some(70));
        assert_eq!(marked_process(&lists(marked, marked)), None, "two are alike");
        assert_eq!(marked_process(&lists([500, 540, 614, 614], [900; 4])), None, "not returned");
        let twins = marked.map(|mib| vec![process(0, mib), process(0, 900)]);
        assert_eq!(marked_process(&twins), None, "one number for all");
        let hidden = marked.map(|_| vec![GpuProcess { number: 70, memory: None }]);
        assert_eq!(marked_process(&hidden), None, "no memory is reported");
        assert_eq!(marked_process(&[const { Vec::new() }; 4]), None);
    }

    /// Lists this process as number 4711, with the memory that a model has given out on the GPU, and others.
    struct OtherNamespace {
        machine: Machine,
        others: Vec<GpuProcess>,
    }

    impl Monitor for OtherNamespace {
        fn facts(&self, _: u32) -> Option<GpuFacts> {
            None
        }
        fn state(&self, _: u32) -> Option<GpuState> {
            None
        }
        fn counters(&self, _: u32) -> Option<GpuState> {
            None
        }
        fn users(&self, gpu: u32) -> Option<GpuUsers> {
            let (free, total) = self.machine.driver().ok()?.memory(gpu).ok()?;
            let own = GpuProcess { number: 4711, memory: Some(Bytes(total.0 - free.0)) };
            let here = self.others.iter().copied().filter(|_| gpu == 2);
            Some(GpuUsers { others: None, listed: [own].into_iter().chain(here).collect() })
        }
    }

    #[test]
    fn a_process_finds_itself_in_another_namespace() {
        let desc = MachineDesc::preset("hgx-h200").unwrap();
        let machine = machine_with(&desc, RuntimeEnv::default(), &SimOptions::default()).unwrap();
        let monitor = OtherNamespace { machine, others: vec![process(12, 300)] };
        let lists = mark(&monitor.machine, 1, || monitor.users(1).unwrap().listed).unwrap();
        let own = marked_process(&lists);
        assert_eq!(own, Some(4711));
        let count = |gpu| others(&monitor.users(gpu).unwrap(), own);
        assert_eq!((count(1), count(2)), (Some(0), Some(1)));
        assert_eq!(others(&monitor.users(1).unwrap(), None), None);
    }
}
