//! How well a description determines what it predicts of a case or an exchange.

use pathline_flow::{
    DescError, DescVariants, FigureForm, MachineDesc, Network, PredictionTrust, RuntimeEnv,
    SetPredictor, find_trust,
};
use pathline_message::{ExchangeSpec, MessageLayer};
use pathline_schema::Case;

/// Exchanges of more ranks, and more figures, are not predicted again for each constant.
pub const MAX_TRUST_RANKS: usize = 256;
/// See [`MAX_TRUST_RANKS`].
pub const MAX_TRUST_FIGURES: usize = 256;

/// What a description predicts the time of.
#[derive(Debug, Clone, Copy)]
pub enum PredictedFigure<'a> {
    /// Flows that start together.
    Case(&'a Case),
    /// An exchange of messages.
    Exchange(&'a ExchangeSpec),
}

impl PredictedFigure<'_> {
    /// What it is a figure of: how well the form of the model determines it.
    pub fn form(self) -> FigureForm {
        match self {
            Self::Case(case) => {
                FigureForm::Flows(case.flows().map(|flow| flow.bytes).min().unwrap_or_default())
            }
            Self::Exchange(_) => FigureForm::Exchange,
        }
    }
}

/// Of each figure the constants that decide it, and the factors within which its time is known. `text` is that
/// of the description. Empty for a description without origins, and for more than [`MAX_TRUST_FIGURES`].
///
/// # Errors
/// The text is not that of the description.
pub fn find_figure_trust(
    desc: &MachineDesc,
    text: &str,
    figures: &[PredictedFigure<'_>],
) -> Result<Vec<PredictionTrust>, DescError> {
    let known = desc.constants().iter().any(|constant| constant.origin.is_some());
    if !known || figures.len() > MAX_TRUST_FIGURES {
        return Ok(Vec::new());
    }
    let variants = DescVariants::new(desc, text)?.of_one_stack();
    let all: Vec<usize> = (0..figures.len()).collect();
    let has_exchange = figures.iter().any(|f| matches!(f, PredictedFigure::Exchange(_)));
    let layer = if has_exchange { MessageLayer::new(desc).ok() } else { None };
    let base = figure_times(desc, layer.as_ref(), figures, &all);
    // A constant that changes by percents lays no other rings; finding them takes most of the time.
    let mut times = |variant: &MachineDesc, wanted: &[usize]| {
        let layer = layer.as_ref().and_then(|layer| layer.damaged(variant, &[]).ok());
        figure_times(variant, layer.as_ref(), figures, wanted)
    };
    let forms: Vec<FigureForm> = figures.iter().map(|figure| figure.form()).collect();
    Ok(find_trust(&variants, &forms, &base, &mut times))
}

/// The times of figures by a description, ns; none of one that it cannot predict.
pub fn predict_times(desc: &MachineDesc, figures: &[PredictedFigure<'_>]) -> Vec<Option<f64>> {
    let layer = MessageLayer::new(desc).ok();
    figure_times(desc, layer.as_ref(), figures, &(0..figures.len()).collect::<Vec<_>>())
}

/// The times of the figures of these numbers, ns.
fn figure_times(
    desc: &MachineDesc,
    layer: Option<&MessageLayer>,
    figures: &[PredictedFigure<'_>],
    wanted: &[usize],
) -> Vec<Option<f64>> {
    let Ok(network) = Network::new(desc, RuntimeEnv::default()) else {
        return vec![None; wanted.len()];
    };
    let mut predictor = SetPredictor::new(&network);
    let chosen = wanted.iter().map(|&nth| figures.get(nth));
    let time = |figure: Option<&PredictedFigure<'_>>| match figure? {
        PredictedFigure::Case(case) => Some(predictor.durations(case).ok()?.set.typical.0),
        PredictedFigure::Exchange(exchange) => {
            let is_small = exchange.members().len() <= MAX_TRUST_RANKS;
            let layer = layer.filter(|_| is_small)?;
            Some(layer.time(exchange).ok()?.time.0)
        }
    };
    chosen.map(time).collect()
}
