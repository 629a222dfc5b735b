// Where the numerical oracle lies: BATON_ORACLE_DIR, or ../shared/oracle beside the source tree.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <string>

#include "tests/source_dir.h"

namespace baton::model {

// Empty when it is not there: a test that needs it is then skipped in sight.
inline std::string OracleDir() {
  const char* set = std::getenv("BATON_ORACLE_DIR");
  const std::string folder = set != nullptr ? set : SourceDir() + "/../shared/oracle";
  return std::filesystem::is_directory(folder) ? folder : std::string();
}

}  // namespace baton::model
