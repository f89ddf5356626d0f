//! A report without anything that steers a terminal.
//!
//! A journal may come by mail, and its texts are anybody's: names of machines and GPUs, reasons of
//! skips, errors of libraries. They are made plain here, once, before terminal and page add colours
//! and tags of their own. A field that is added to a report does not compile until it is listed.

use pathline_schema::plain_line;

use crate::figure::{
    Absence, Bar, Bars, Body, Cell, Column, Curves, Doubt, Figure, Gap, Gaps, Headline, Line, Loss,
    Matrix, Part, Published, Report, Sheet, Stack, Stacks, Suspicion, Way,
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
    Report { title, simulated, headlines, figures, absences, notes, conditions, gpus; state, complete }
    Headline { text; tone }
    Figure { id, suite, title, finding, command, body; }
    Absence { suites, why; case, faulted }
    Doubt { code, subject, text; }
    Matrix { unit, row_axis, col_axis, rows, cols, cells; better }
    Curves { x_unit, y_unit, lines, ceilings, marks; better }
    Line { name, points; }
    Bars { unit, bars; better }
    Bar { label, cell; }
    Sheet { row_axis, columns, rows; }
    Column { name, unit; better }
    Stacks { whole, stacks; }
    Stack { label, parts; }
    Part { name, words, cell; }
    Gaps { unit, base, other, row_axis, col_axis, rows, cols, panels; }
    Gap { cell, saturated; base, other, pairs, is_zero }
    Cell { way, published, absent, gpus, suspect; value, half_width, ceiling, bound, case }
    Way { route, narrowest, losses; }
    Loss { why; from, to }
    Published { source; value }
}

impl MakePlain for Suspicion {
    fn make_plain(&mut self) {
        match self {
            Self::BeyondCeiling(text) | Self::Unverified(text) => text.make_plain(),
        }
    }
}

impl MakePlain for Body {
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
