//! A placed plan to a prediction.
