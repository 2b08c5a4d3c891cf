// Which options count for what `weft plan` is asked to do.
#pragma once
#include "command.h"

namespace weft::app {

// An option that counts for nothing is a mistake: throws UsageError that names it and what it belongs to.
// use: "--for train", "--for serve", or the option that asks for something else, as "--import".
void refuse_idle_options(const CLI::App& command, std::string_view use);

}  // namespace weft::app
