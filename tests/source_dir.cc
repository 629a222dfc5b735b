#include "tests/source_dir.h"

namespace baton {

std::string SourceDir() { return BATON_SOURCE_DIR; }

}  // namespace baton
