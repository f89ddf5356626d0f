//! Removes terminal control characters from a report.
//!
//! A journal may come from anywhere, and its texts are untrusted: names of machines and GPUs,
//! reasons of skips, errors of libraries. They are cleaned here, once, before terminal and page add
//! colours and tags. A new field of a report does not compile until it is listed.

use pathline_schema::{GpuCaps, plain_line};

use crate::figure::{
    BarsBody, BusyReport, ChartLine, CurvesBody, Figure, FigureBar, FigureBody, FigureCell,
    FigurePanel, FigureStack, GapsBody, Headline, LossBreakdown, LossStep, MatrixBody, MissingCase,
    PairedGap, PanelsBody, PublishedValue, RunIdentity, RunReport, RunWarning, SheetBody,
    SheetColumn, StackPart, StacksBody, Suspicion,
};

/// A value that contains texts.
pub(crate) trait EachText {
    /// Edits every text.
    fn each_text(&mut self, edit: &mut dyn FnMut(&mut String));
}

/// Replaces control characters in every text; line ends become spaces.
pub(crate) fn make_plain(texts: &mut impl EachText) {
    texts.each_text(&mut |text| {
        if let std::borrow::Cow::Owned(plain) = plain_line(text) {
            *text = plain;
        }
    });
}

/// Uses the GPU vendor's names: journals and models use one term for all vendors.
pub(crate) fn use_vendor_terms(texts: &mut impl EachText, caps: &GpuCaps) {
    texts.each_text(&mut |text| {
        for (generic, term) in caps.terms {
            if text.contains(generic) {
                *text = text.replace(generic, term);
            }
        }
    });
}

impl EachText for String {
    fn each_text(&mut self, edit: &mut dyn FnMut(&mut String)) {
        edit(self);
    }
}
impl<T: EachText> EachText for Vec<T> {
    fn each_text(&mut self, edit: &mut dyn FnMut(&mut String)) {
        self.iter_mut().for_each(|item| item.each_text(edit));
    }
}
impl<T: EachText> EachText for Option<T> {
    fn each_text(&mut self, edit: &mut dyn FnMut(&mut String)) {
        self.iter_mut().for_each(|item| item.each_text(edit));
    }
}
impl<A: EachText, B: EachText> EachText for (A, B) {
    fn each_text(&mut self, edit: &mut dyn FnMut(&mut String)) {
        self.0.each_text(edit);
        self.1.each_text(edit);
    }
}
impl EachText for f64 {
    fn each_text(&mut self, _: &mut dyn FnMut(&mut String)) {}
}

/// Lists the fields of a type: those with texts, then the others.
macro_rules! texts {
    ($($t:ty { $($text:ident),* ; $($other:ident),* })+) => {$(
        impl EachText for $t {
            fn each_text(&mut self, edit: &mut dyn FnMut(&mut String)) {
                let Self { $($text,)* $($other: _,)* } = self;
                $($text.each_text(edit);)*
            }
        }
    )+};
}

texts! {
    RunReport { title, identity, simulated, busy, headlines, figures, absences, warnings, conditions, gpus; state, complete }
    RunIdentity { node, gpus, packages, rank_gpus, processor, driver, started, duration, version, command, parts; ranks, nodes }
    BusyReport { reasons, effect, action; }
    Headline { text; tone, is_listed }
    Figure { id, suite, title, finding, command, body; }
    MissingCase { suites, why; case, faulted }
    RunWarning { code, subject, text; }
    MatrixBody { unit, row_axis, col_axis, rows, cols, cells; better }
    CurvesBody { x_unit, y_unit, lines, ceilings, marks; better }
    ChartLine { name, points; }
    PanelsBody { x_unit, y_unit, panels; better }
    FigurePanel { name, lines, levels; floor }
    BarsBody { unit, bars; better }
    FigureBar { label, cell; }
    SheetBody { row_axis, columns, rows; }
    SheetColumn { name, unit; better }
    StacksBody { whole, stacks; }
    FigureStack { label, parts; }
    StackPart { name, detail, cell; }
    GapsBody { quantity, unit, base, other, row_axis, col_axis, rows, cols, panels; }
    PairedGap { cell, saturated; base, other, pairs, is_zero }
    FigureCell { path, published, absent, gpus, suspect; value, half_width, few, node, ceiling, bound, case, origin }
    LossBreakdown { route, narrowest, losses; }
    LossStep { why; from, to, kind }
    PublishedValue { source; value, kind }
}

impl EachText for Suspicion {
    fn each_text(&mut self, edit: &mut dyn FnMut(&mut String)) {
        match self {
            Self::BeyondCeiling(text) | Self::Busy(text) | Self::Unverified(text) => {
                text.each_text(edit)
            }
            Self::Assumed => {}
        }
    }
}

impl EachText for FigureBody {
    fn each_text(&mut self, edit: &mut dyn FnMut(&mut String)) {
        match self {
            Self::Matrix(body) => body.each_text(edit),
            Self::Curves(body) => body.each_text(edit),
            Self::Bars(body) => body.each_text(edit),
            Self::Sheet(body) => body.each_text(edit),
            Self::Stacks(body) => body.each_text(edit),
            Self::Gaps(body) => body.each_text(edit),
            Self::Panels(body) => body.each_text(edit),
        }
    }
}
