# Warnings and code generation shared by all of Baton's targets: link `baton_flags`.
#
# -ffp-contract=off: the row contract (docs/impl.md) needs every fused multiply-add to be written by hand, so that the
# compiler's choice never changes a result. No flag here may name the build machine's CPU: only single kernel files are
# compiled for an instruction set, and are called after the CPU was asked.
add_library(baton_flags INTERFACE)
target_include_directories(baton_flags INTERFACE ${CMAKE_SOURCE_DIR})
target_compile_options(baton_flags INTERFACE
  -Wall -Wextra -Wpedantic -Werror -Wno-missing-field-initializers -ffp-contract=off -fno-math-errno)
if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
  target_compile_options(baton_flags INTERFACE -Wthread-safety -Wno-deprecated-declarations)
else()
  # GCC 12 warns inside its own and Abseil's headers when it inlines deeply.
  target_compile_options(baton_flags INTERFACE -Wno-maybe-uninitialized -Wno-array-bounds -Wno-stringop-overflow
    -Wno-restrict)
endif()
if(CMAKE_CXX_FLAGS MATCHES "-fsanitize=thread")
  # Abseil's flags of two words are read under a sequence lock, whose fences GCC names as unknown to ThreadSanitizer.
  target_compile_options(baton_flags INTERFACE -Wno-tsan)
endif()
if(BATON_PLANTED_FAULTS)
  target_compile_definitions(baton_flags INTERFACE BATON_PLANTED_FAULTS=1)
endif()
