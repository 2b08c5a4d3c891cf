// weft plan --show-hardware and --measure: machines as figures, as TOML to keep and as JSON.
#pragma once
#include "command.h"

namespace weft::app {

// An entry of the catalogue.
void show_hardware(const std::string& name, const Output& output);

// This machine, into a file, or where none is named, to the output.
void measure_hardware(const std::string& file, const Output& output);

}  // namespace weft::app
