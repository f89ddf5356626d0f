//! A report without anything that steers a terminal.
//!
//! A journal may come by mail, and its texts are anybody's: names of machines and GPUs, reasons of
//! skips, errors of libraries. They are made plain here, once, before terminal and page add colours
//! and tags of their own. A field that is added to a report does not compile until it is listed.

use pathline_schema::plain_line;

use crate::figure::{
    BarsBody, BusyReport, ChartLine, CurvesBody, Figure, FigureBar, FigureBody, FigureCell,
    FigureStack, GapsBody, Headline, LossBreakdown, LossStep, MatrixBody, MissingCase, PairedGap,
    PublishedValue, RunReport, RunWarning, SheetBody, SheetColumn, StackPart, StacksBody,
    Suspicion,
};

/// What holds texts.
pub(crate) trait MakePlain {
    /// Replaces in every text what steers a terminal; line ends become spaces.
    fn make_plain(&mut self);
}

impl MakePlain for String {
    fn make_plain(&mut self) {
        if let std::borrow::Cow::Owned(plain) = plain_line(self) {
            *self = plain;
        }
    }
}
impl<T: MakePlain> MakePlain for Vec<T> {
    fn make_plain(&mut self) {
        self.iter_mut().for_each(T::make_plain);
    }
}
impl<T: MakePlain> MakePlain for Option<T> {
    fn make_plain(&mut self) {
        self.iter_mut().for_each(T::make_plain);
    }
}
impl<A: MakePlain, B: MakePlain> MakePlain for (A, B) {
    fn make_plain(&mut self) {
        self.0.make_plain();
        self.1.make_plain();
    }
}
impl MakePlain for f64 {
    fn make_plain(&mut self) {}
}

/// Lists the fields of a type: those with texts, then the others.
macro_rules! plain {
    ($($t:ty { $($text:ident),* ; $($other:ident),* })+) => {$(
        impl MakePlain for $t {
            fn make_plain(&mut self) {
                let Self { $($text,)* $($other: _,)* } = self;
                $($text.make_plain();)*
            }
        }
    )+};
}

plain! {
    RunReport { title, simulated, busy, headlines, figures, absences, warnings, conditions, gpus; state, complete }
    BusyReport { reasons, effect, action; }
    Headline { text; tone }
    Figure { id, suite, title, finding, command, body; }
    MissingCase { suites, why; case, faulted }
    RunWarning { code, subject, text; }
    MatrixBody { unit, row_axis, col_axis, rows, cols, cells; better }
    CurvesBody { x_unit, y_unit, lines, ceilings, marks; better }
    ChartLine { name, points; }
    BarsBody { unit, bars; better }
    FigureBar { label, cell; }
    SheetBody { row_axis, columns, rows; }
    SheetColumn { name, unit; better }
    StacksBody { whole, stacks; }
    FigureStack { label, parts; }
    StackPart { name, detail, cell; }
    GapsBody { unit, base, other, row_axis, col_axis, rows, cols, panels; }
    PairedGap { cell, saturated; base, other, pairs, is_zero }
    FigureCell { path, published, absent, gpus, suspect; value, half_width, few, node, ceiling, bound, case, origin }
    LossBreakdown { route, narrowest, losses; }
    LossStep { why; from, to }
    PublishedValue { source; value, kind }
}

impl MakePlain for Suspicion {
    fn make_plain(&mut self) {
        match self {
            Self::BeyondCeiling(text) | Self::Busy(text) | Self::Unverified(text) => {
                text.make_plain()
            }
            Self::Assumed => {}
        }
    }
}

impl MakePlain for FigureBody {
    fn make_plain(&mut self) {
        match self {
            Self::Matrix(body) => body.make_plain(),
            Self::Curves(body) => body.make_plain(),
            Self::Bars(body) => body.make_plain(),
            Self::Sheet(body) => body.make_plain(),
            Self::Stacks(body) => body.make_plain(),
            Self::Gaps(body) => body.make_plain(),
        }
    }
}
