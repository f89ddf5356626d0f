//! How far trials are.

use std::cell::RefCell;
use std::io::IsTerminal;

use pathline_advise::AdviceStep;

use crate::say;

/// One line on standard error that is redrawn, where that is a terminal.
pub(super) struct AdviceProgress {
    bar: indicatif::ProgressBar,
    last: RefCell<String>,
}

impl AdviceProgress {
    pub(super) fn new() -> Self {
        let bar = indicatif::ProgressBar::new_spinner();
        if say::is_quiet() || !std::io::stderr().is_terminal() {
            bar.set_draw_target(indicatif::ProgressDrawTarget::hidden());
        }
        Self { bar, last: RefCell::default() }
    }

    pub(super) fn show(&self, step: &AdviceStep<'_>) {
        let AdviceStep { doing, subject, choice, blocks } = step;
        let choice = if choice.is_empty() { String::new() } else { format!(": {choice}") };
        let text = format!("{doing}, block {}: {subject}{choice}", blocks + 1);
        if *self.last.borrow() != text {
            self.bar.set_message(text.clone());
            self.bar.tick();
            self.last.replace(text);
        }
    }

    pub(super) fn end(&self) {
        self.bar.finish_and_clear();
    }
}
