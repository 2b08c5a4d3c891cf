// expect_text: a message says something.
#pragma once
#include <gtest/gtest.h>

#include <string>

namespace weft {

inline void expect_text(const std::string& message, const std::string& text) {
  EXPECT_NE(message.find(text), std::string::npos) << message << "\ndoes not contain\n" << text;
}

}  // namespace weft
