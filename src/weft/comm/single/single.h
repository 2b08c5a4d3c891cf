// A group of one rank.
#pragma once
#include <memory>

#include "weft/comm/communicator.h"

namespace weft {

std::unique_ptr<Communicator> make_single_communicator(std::string_view label = "world");

}  // namespace weft
