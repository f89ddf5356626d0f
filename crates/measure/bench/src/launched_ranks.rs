//! Cases that the processes of a launcher cannot have: their environment is that of their start.

use pathline_schema::shell_line;

use crate::plan::RunPlan;

impl RunPlan {
    /// Skips messages that need another environment than the launched processes have. The reason is
    /// the command that measures them: `launcher` is such as `srun -n 8`, `command` that of this run.
    pub fn with_launched_ranks(mut self, launcher: &str, command: &[String]) -> Self {
        for entry in self.entries.iter_mut().filter(|entry| entry.skip.is_none()) {
            let is_message = entry.case.flows().any(|flow| flow.by.wire().is_some());
            if !is_message || entry.env.is_empty() {
                continue;
            }
            let set: Vec<String> =
                entry.env.iter().map(|(name, v)| format!("{name}={v}")).collect();
            let set = shell_line(set.iter().map(String::as_str));
            entry.skip = Some(format!(
                "it needs {set}, and the processes of a launcher keep the environment of their start; \
                 for these cases start them again: env {set} {launcher} {}",
                shell_line(command.iter().map(String::as_str))
            ));
        }
        self
    }
}
