// Rotary positions: the frequencies by which pairs of a head turn.
#pragma once
#include "schema/spec/spec.h"

// frequencies(D/2), radians a position: base^(−2i/D), and with a scaling factor as Llama 3 has it: wavelengths above
// original_length / low are stretched by the factor, those below original_length / high stay, and between them the share that is
// stretched falls evenly with original_length / wavelength.
void rope_frequencies(double *frequencies, const struct spec *spec);
