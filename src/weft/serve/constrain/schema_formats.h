// The formats of texts in JSON schemas that are followed.
#pragma once
#include <string>

namespace weft::constrain {

// A regular expression of texts that have the format, not of all of them; null where it is read as an annotation.
const char* regex_of_format(const std::string& format);

}  // namespace weft::constrain
