"""Small tools that every layer may use: clocks, ids, text, units, files, errors, fault points. These modules import
nothing else of Holdfast."""
