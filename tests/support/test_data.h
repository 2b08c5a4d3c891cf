// Files that tests use when they are there: real models and tokenizers, too large or too foreign for the repository.
#pragma once
#include <cstdlib>
#include <filesystem>
#include <string>

namespace weft {

// `name` below the folder that the environment variable WEFT_TEST_DATA names; empty when either is absent.
inline std::string test_data(const std::string& name) {
  const char* folder = std::getenv("WEFT_TEST_DATA");
  if (!folder || !*folder) return {};
  const std::filesystem::path path = std::filesystem::path(folder) / name;
  return std::filesystem::exists(path) ? path.string() : std::string();
}

// What a test that is skipped for want of `name` says.
inline std::string no_test_data(const std::string& name) {
  return "there is no " + name + " in the folder that WEFT_TEST_DATA names";
}

}  // namespace weft
