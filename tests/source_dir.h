// Where the sources are, for tests that read files of theirs. Compiled once, so that no other object depends on the path.
#pragma once

#include <string>

namespace baton {

std::string SourceDir();  // Absolute, without a slash at its end.

}  // namespace baton
