//! A set of flows that start together, run forward: weighted max-min rates, starts, queues.
//!
//! The same physics as a prediction, made for a fit: a model whose parts change a thousand times a
//! second, and the rates of each stretch of time at hand for the search of what is missing.

/// One flow of a set.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Job {
    /// Its path, by index.
    pub path: usize,
    /// Payload of one repetition.
    pub bytes: f64,
    /// Repetitions, one after the other, each with its own start.
    pub reps: u64,
    /// Whether it only loads the machine, and does so until all others have ended.
    pub background: bool,
    /// Its turn in its queue: the lowest is served first.
    pub turn: u32,
}

impl Job {
    /// Payload of all repetitions.
    pub fn payload(&self) -> f64 {
        self.bytes * self.reps as f64
    }
}

/// Something that several paths take from.
#[derive(Debug, Clone, PartialEq)]
pub struct Shared {
    /// GB/s.
    pub capacity: f64,
    /// Bytes of it for a byte of payload, by path; 0 for paths that do not use it.
    pub takes: Vec<f64>,
}

impl Shared {
    /// The paths that use it.
    pub fn members(&self) -> impl Iterator<Item = usize> + '_ {
        self.takes.iter().enumerate().filter(|(_, t)| **t > 0.0).map(|(p, _)| p)
    }
}

/// What a set is run on.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Plant {
    /// Rate of each path alone, GB/s.
    pub caps: Vec<f64>,
    /// Time before the first byte of each path, ns.
    pub starts: Vec<f64>,
    /// Weight of each path where rates are shared out.
    pub shares: Vec<f64>,
    /// Queue of each path.
    pub queues: Vec<Option<usize>>,
    /// What paths share.
    pub shared: Vec<Shared>,
}

/// What became of a set.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Course {
    /// End of each flow in ns, in the order of the set; infinite for flows of the background.
    pub ends: Vec<f64>,
    /// Rates while most flows moved bytes, GB/s.
    pub peak: Vec<f64>,
}

impl Course {
    /// The end of the last timed flow.
    pub fn total(&self) -> f64 {
        self.ends.iter().copied().filter(|e| e.is_finite()).fold(0.0, f64::max)
    }
}

/// More repetitions than this are taken as one with as many starts before it: their starts overlap
/// with the bytes of others in so many ways that only the mean counts.
const MOST_REPS: u64 = 16;
/// Levels that differ by less than this share are one.
const SAME: f64 = 1e-11;

/// Buffers of a simulation, kept between calls.
#[derive(Debug, Default)]
pub struct Runner {
    states: Vec<State>,
    rates: Vec<f64>,
    active: Vec<usize>,
    rising: Vec<usize>,
    pools: Vec<Pool>,
    /// Which pools each flow of the set uses, and what it takes of them for a byte: those of flow `i`
    /// are `uses[users[i]..users[i + 1]]`.
    uses: Vec<(u32, f64)>,
    users: Vec<usize>,
    /// Pools of the plant that the set can fill.
    fillable: Vec<usize>,
}

#[derive(Debug, Clone, Copy)]
struct State {
    phase: Phase,
    /// Repetitions after this one.
    more: u64,
    /// Payload and start of one repetition.
    bytes: f64,
    start: f64,
    left: f64,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Phase {
    /// Another of its queue is served.
    Waiting,
    /// Until the first byte moves.
    Starting(f64),
    Moving,
    Done,
}

#[derive(Debug, Clone, Copy)]
struct Pool {
    capacity: f64,
    left: f64,
    weight: f64,
    users: u32,
    /// Whether this round fills it.
    full: bool,
}

impl Runner {
    /// Runs a set to its end.
    pub fn run(&mut self, plant: &Plant, jobs: &[Job], course: &mut Course) {
        self.gather(plant, jobs);
        course.ends.clear();
        course.ends.resize(jobs.len(), f64::INFINITY);
        course.peak.clear();
        course.peak.resize(jobs.len(), 0.0);
        self.begin(plant, jobs);
        let (mut now, mut most) = (0.0, 0);
        let mut open = jobs.iter().filter(|j| !j.background).count();
        while open > 0 {
            let Self { states, active, .. } = self;
            active.clear();
            active.extend((0..jobs.len()).filter(|&i| states[i].phase == Phase::Moving));
            self.share(plant, jobs);
            if self.active.len() > most {
                most = self.active.len();
                course.peak.copy_from_slice(&self.rates);
            }
            let next = self.next(now);
            if !next.is_finite() {
                break;
            }
            open -= self.advance(plant, jobs, now, next, &mut course.ends);
            now = next;
        }
    }

    /// Pools that this set can fill, and what its flows take of them.
    fn gather(&mut self, plant: &Plant, jobs: &[Job]) {
        let Self { pools, uses, users, fillable, .. } = self;
        pools.clear();
        fillable.clear();
        for (k, Shared { capacity, takes }) in plant.shared.iter().enumerate() {
            let most: f64 = jobs.iter().map(|j| takes[j.path] * plant.caps[j.path]).sum();
            if most > capacity * (1.0 + SAME) {
                let capacity = *capacity;
                pools.push(Pool { capacity, left: 0.0, weight: 0.0, users: 0, full: false });
                fillable.push(k);
            }
        }
        uses.clear();
        users.clear();
        users.push(0);
        for job in jobs {
            let take = |(k, &s): (usize, &usize)| (k as u32, plant.shared[s].takes[job.path]);
            uses.extend(fillable.iter().enumerate().map(take).filter(|(_, take)| *take > 0.0));
            users.push(uses.len());
        }
    }

    fn begin(&mut self, plant: &Plant, jobs: &[Job]) {
        self.states.clear();
        for job in jobs {
            let start = plant.starts[job.path];
            let merged = start == 0.0 || job.reps > MOST_REPS;
            let (bytes, start, more) = if merged {
                (job.payload(), start * job.reps as f64, 0)
            } else {
                (job.bytes, start, job.reps.saturating_sub(1))
            };
            let (bytes, more) = if job.background { (f64::INFINITY, 0) } else { (bytes, more) };
            self.states.push(State { phase: Phase::Waiting, more, bytes, start, left: bytes });
        }
        for i in 0..jobs.len() {
            let queue = plant.queues[jobs[i].path];
            let before = |k: usize| (jobs[k].turn, k) < (jobs[i].turn, i);
            let waits = queue.is_some()
                && (0..jobs.len()).any(|k| plant.queues[jobs[k].path] == queue && before(k));
            if !waits {
                self.states[i].phase = Phase::Starting(self.states[i].start);
            }
        }
    }

    /// When the next flow starts or ends.
    fn next(&self, now: f64) -> f64 {
        let at = |(state, rate): (&State, &f64)| match state.phase {
            Phase::Starting(until) => until,
            Phase::Moving => now + state.left / rate,
            Phase::Waiting | Phase::Done => f64::INFINITY,
        };
        self.states.iter().zip(&self.rates).map(at).fold(f64::INFINITY, f64::min)
    }

    /// Moves all to `then`: how many timed flows ended.
    fn advance(
        &mut self,
        plant: &Plant,
        jobs: &[Job],
        now: f64,
        then: f64,
        ends: &mut [f64],
    ) -> usize {
        let mut ended = 0;
        for i in 0..jobs.len() {
            let state = &mut self.states[i];
            match state.phase {
                Phase::Starting(until) if until <= then => state.phase = Phase::Moving,
                Phase::Moving => {
                    let at = now + state.left / self.rates[i];
                    state.left -= self.rates[i] * (then - now);
                    if at > then * (1.0 + SAME) {
                        continue;
                    }
                    if state.more > 0 {
                        state.more -= 1;
                        state.left = state.bytes;
                        state.phase = Phase::Starting(then + state.start);
                        continue;
                    }
                    state.phase = Phase::Done;
                    ends[i] = then;
                    ended += usize::from(!jobs[i].background);
                    self.serve_next(plant, jobs, i, then);
                }
                _ => {}
            }
        }
        ended
    }

    /// The next of the queue that a flow leaves.
    fn serve_next(&mut self, plant: &Plant, jobs: &[Job], left: usize, now: f64) {
        let queue = plant.queues[jobs[left].path];
        let waits = |k: &usize| {
            self.states[*k].phase == Phase::Waiting && plant.queues[jobs[*k].path] == queue
        };
        let next = (0..jobs.len()).filter(waits).min_by_key(|&k| (jobs[k].turn, k));
        if let Some(state) = next.filter(|_| queue.is_some()).map(|k| &mut self.states[k]) {
            state.phase = Phase::Starting(now + state.start);
        }
    }

    /// Weighted max-min rates of the flows that move, by progressive filling: all rise in
    /// proportion to their weights until a pool is full or a flow is at its cap.
    fn share(&mut self, plant: &Plant, jobs: &[Job]) {
        let Self { rates, active, rising, pools, uses, users, .. } = self;
        let uses_of = |i: usize| &uses[users[i]..users[i + 1]];
        rates.clear();
        rates.resize(jobs.len(), 0.0);
        rising.clear();
        rising.extend_from_slice(active);
        for pool in pools.iter_mut() {
            pool.left = pool.capacity;
            (pool.weight, pool.users) = (0.0, 0);
        }
        for &i in active.iter() {
            for &(k, take) in uses_of(i) {
                let pool = &mut pools[k as usize];
                pool.weight += take * plant.shares[jobs[i].path];
                pool.users += 1;
            }
        }
        while !rising.is_empty() {
            let full = |p: &Pool| if p.users == 0 { f64::INFINITY } else { p.left / p.weight };
            let top = |i: &usize| plant.caps[jobs[*i].path] / plant.shares[jobs[*i].path];
            let level = pools.iter().map(full).fold(f64::INFINITY, f64::min);
            let level = rising.iter().map(top).fold(level, f64::min).max(0.0);
            let reached = level * (1.0 + SAME);
            for pool in pools.iter_mut() {
                pool.full = full(pool) <= reached;
            }
            let before = rising.len();
            rising.retain(|&i| {
                if top(&i) > reached && !uses_of(i).iter().any(|(k, _)| pools[*k as usize].full) {
                    return true;
                }
                let share = plant.shares[jobs[i].path];
                rates[i] = (level * share).min(plant.caps[jobs[i].path]);
                for &(k, take) in uses_of(i) {
                    let pool = &mut pools[k as usize];
                    pool.left = (pool.left - take * rates[i]).max(0.0);
                    pool.weight -= take * share;
                    pool.users -= 1;
                }
                false
            });
            if rising.len() == before {
                break;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plant(caps: &[f64], shared: &[(f64, &[f64])]) -> Plant {
        let n = caps.len();
        Plant {
            caps: caps.to_vec(),
            starts: vec![0.0; n],
            shares: vec![1.0; n],
            queues: vec![None; n],
            shared: shared
                .iter()
                .map(|(capacity, takes)| Shared { capacity: *capacity, takes: takes.to_vec() })
                .collect(),
        }
    }

    fn jobs(bytes: &[f64]) -> Vec<Job> {
        let job =
            |(path, &bytes)| Job { path, bytes, reps: 1, background: false, turn: path as u32 };
        bytes.iter().enumerate().map(job).collect()
    }

    fn ends(plant: &Plant, jobs: &[Job]) -> Vec<f64> {
        let mut course = Course::default();
        Runner::default().run(plant, jobs, &mut course);
        course.ends
    }

    fn near(found: &[f64], expected: &[f64]) {
        let same = |(a, b): (&f64, &f64)| (a - b).abs() <= 1e-9 * b.abs();
        assert!(
            found.len() == expected.len() && found.iter().zip(expected).all(same),
            "{found:?} is not {expected:?}"
        );
    }

    /// 60 GB/s for two flows of up to 50 GB/s, 3 and 5 MB: 30 each until the first ends at
    /// 3e6 / 30 = 100 us; then 2 MB at 50 take 40 us.
    #[test]
    fn a_pool_is_shared_and_then_left_to_one() {
        let plant = plant(&[50.0, 50.0], &[(60.0, &[1.0, 1.0])]);
        near(&ends(&plant, &jobs(&[3e6, 5e6])), &[100e3, 140e3]);
    }

    /// Weights 0.5 and 1 on 60: 20 and 40. The second ends at 4e6 / 40 = 100 us; the first has
    /// moved 2 of 4 MB and has 2 MB at its cap of 50: 40 us more.
    #[test]
    fn weights_share_a_pool_out() {
        let mut plant = plant(&[50.0, 50.0], &[(60.0, &[1.0, 1.0])]);
        plant.shares[0] = 0.5;
        near(&ends(&plant, &jobs(&[4e6, 4e6])), &[140e3, 100e3]);
    }

    /// Measured on four H200s: 3>1 512 MiB, 0>2 1 GiB, 3>2 1 GiB, 0>1 512 MiB, 2>3 1 GiB with 395.3
    /// alone and 399 into a GPU. Engines serve one stream at a time. With 3>1 and 0>1 first they
    /// share gpu1's port until 1 GiB has passed at 399 = 2691 us; then 0>2 and 3>2 share gpu2's
    /// port: 2 GiB at 399 = 5382 us, 8073 in all. With 3>1 and 0>2 first nothing is shared: 3>1
    /// ends at 1358 us, then 3>2 meets 0>2 in gpu2's port and 0>2 has 358e6 B left.
    #[test]
    fn engines_serve_one_stream_at_a_time() {
        const MIB: f64 = 1048576.0;
        // Paths: 3>1, 0>2, 3>2, 0>1, 2>3.
        let into_1 = [1.0, 0.0, 0.0, 1.0, 0.0];
        let into_2 = [0.0, 1.0, 1.0, 0.0, 0.0];
        let mut plant = plant(&[395.3; 5], &[(399.0, &into_1), (399.0, &into_2)]);
        plant.queues = vec![Some(3), Some(0), Some(3), Some(0), Some(2)];
        let mut set = jobs(&[512.0 * MIB, 1024.0 * MIB, 1024.0 * MIB, 512.0 * MIB, 1024.0 * MIB]);
        for (job, turn) in set.iter_mut().zip([0, 1, 1, 0, 0]) {
            job.turn = turn;
        }
        let both_first = ends(&plant, &set).into_iter().fold(0.0, f64::max);
        let at = 2.0 * 512.0 * MIB / 399.0 + 2.0 * 1024.0 * MIB / 399.0;
        near(&[both_first], &[at]);
        assert_eq!((both_first / 1e3).round(), 8073.0);
        for (job, turn) in set.iter_mut().zip([0, 0, 1, 1, 0]) {
            job.turn = turn;
        }
        let apart = ends(&plant, &set).into_iter().fold(0.0, f64::max);
        assert_eq!((apart / 1e3).round(), 5407.0);
    }

    /// Two repetitions of 1 MB at 10 with a start of 50 us each: 2 x (50 + 100) = 300 us.
    #[test]
    fn each_repetition_has_its_start() {
        let mut plant = plant(&[10.0], &[]);
        plant.starts[0] = 50e3;
        let job = Job { path: 0, bytes: 1e6, reps: 2, background: false, turn: 0 };
        near(&ends(&plant, &[job]), &[300e3]);
    }

    /// A background flow takes half of 10 as long as the other needs: 1 MB at 5 take 200 us.
    #[test]
    fn a_background_flow_never_ends() {
        let plant = plant(&[10.0, 10.0], &[(10.0, &[1.0, 1.0])]);
        let mut set = jobs(&[1e6, 1.0]);
        set[1].background = true;
        assert_eq!(ends(&plant, &set), [200e3, f64::INFINITY]);
    }
}
