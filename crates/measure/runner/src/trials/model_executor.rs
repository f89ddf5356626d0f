//! Trials on a model: its machine is opened again for each environment, as a process would be.

use std::collections::BTreeMap;
use std::io;

use pathline_bench::{
    CaseTask, EventSink, Executor, InterruptCheck, LocalExecutor, MachineInfo, TaskEnd,
};
use pathline_schema::{Ns, RunSettings};

use crate::{OpenMachine, RunRequest, switches};

/// Measures the cases of a model with the variables of each task.
pub struct ModelExecutor<'m> {
    request: &'m RunRequest,
    /// Without further variables.
    plain: LocalExecutor<'m>,
    settings: RunSettings,
    /// Machines with further variables.
    others: BTreeMap<BTreeMap<String, String>, OpenMachine>,
    /// Virtual time on these machines.
    others_time: Ns,
}

impl<'m> ModelExecutor<'m> {
    /// On the open machine of a request.
    pub fn new(request: &'m RunRequest, open: &'m OpenMachine, about: MachineInfo) -> Self {
        let settings = request.settings_on(&about.topology);
        let plain = LocalExecutor::new(&open.machine, about, settings);
        Self { request, plain, settings, others: BTreeMap::new(), others_time: Ns(0.0) }
    }
}

impl Executor for ModelExecutor<'_> {
    fn about(&self) -> &MachineInfo {
        self.plain.about()
    }
    fn now(&self) -> Ns {
        self.plain.now() + self.others_time
    }
    fn measure(
        &mut self,
        task: &CaseTask,
        interrupt: InterruptCheck<'_>,
        sink: EventSink<'_>,
    ) -> io::Result<TaskEnd> {
        let env = task.env();
        if env.is_empty() {
            return self.plain.measure(task, interrupt, sink);
        }
        if !self.others.contains_key(&env) {
            let mut all = switches();
            all.extend(env.clone());
            match self.request.open(&all, None) {
                Ok(open) => self.others.insert(env.clone(), open),
                Err(why) => return Ok(TaskEnd::Gone(format!("{why:#}"))),
            };
        }
        let Some(open) = self.others.get(&env) else {
            return Ok(TaskEnd::Gone("its machine is not open".to_owned()));
        };
        let about = self.plain.about().clone();
        let mut executor = LocalExecutor::new(&open.machine, about, self.settings);
        let begun = executor.now();
        let end = executor.measure(task, interrupt, sink);
        self.others_time = self.others_time + (executor.now() - begun);
        end
    }
}
