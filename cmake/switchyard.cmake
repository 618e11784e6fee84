# The verbs of the build: flags every target shares, outside libraries, and one way to add a library, a program and a test.

set(CMAKE_C_STANDARD 17)
set(CMAKE_C_STANDARD_REQUIRED ON)
set(CMAKE_C_EXTENSIONS OFF)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE RelWithDebInfo CACHE STRING "build type" FORCE)
endif()
set(CMAKE_C_FLAGS_RELWITHDEBINFO "-O2 -g")
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)

set(SANITIZE "" CACHE STRING "sanitizers for every target, such as address,undefined")
option(WERROR "treat warnings as errors" OFF)

include(GNUInstallDirs)
include(CTest)
find_package(PkgConfig REQUIRED)
find_package(Threads REQUIRED)
find_package(OpenMP REQUIRED COMPONENTS C)
pkg_check_modules(YAML REQUIRED IMPORTED_TARGET yaml-0.1)
pkg_check_modules(JANSSON REQUIRED IMPORTED_TARGET jansson)
pkg_check_modules(SQLITE REQUIRED IMPORTED_TARGET sqlite3)
pkg_check_modules(MICROHTTPD REQUIRED IMPORTED_TARGET libmicrohttpd)
pkg_check_modules(CURL REQUIRED IMPORTED_TARGET libcurl)
pkg_check_modules(CRYPTO REQUIRED IMPORTED_TARGET libcrypto)
pkg_check_modules(ZLIB REQUIRED IMPORTED_TARGET zlib)
pkg_check_modules(CMOCKA IMPORTED_TARGET cmocka)
find_package(MPI REQUIRED COMPONENTS C)

# Every target's flags: one interface target, so that nothing is set twice. Includes start at the root.
add_library(switchyard_flags INTERFACE)
target_include_directories(switchyard_flags INTERFACE ${CMAKE_SOURCE_DIR})
target_compile_definitions(switchyard_flags INTERFACE _GNU_SOURCE SWITCHYARD_VERSION="${PROJECT_VERSION}")
# -ffp-contract=off: one expression, one result, whatever the compiler would like to fuse; kernels fuse by hand.
target_compile_options(switchyard_flags INTERFACE -Wall -Wextra -Wconversion -Wshadow -Wstrict-prototypes -ffp-contract=off
  $<$<BOOL:${WERROR}>:-Werror>)
target_link_libraries(switchyard_flags INTERFACE Threads::Threads m)
if(SANITIZE)
  target_compile_options(switchyard_flags INTERFACE -fsanitize=${SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  target_link_options(switchyard_flags INTERFACE -fsanitize=${SANITIZE})
endif()

# switchyard_library(NAME [LINK target…] FILES file…): a static library of this folder's files.
function(switchyard_library name)
  cmake_parse_arguments(arg "" "" "LINK;FILES" ${ARGN})
  if(arg_FILES)
    add_library(${name} STATIC ${arg_FILES})
    target_link_libraries(${name} PUBLIC switchyard_flags ${arg_LINK})
  else()
    add_library(${name} INTERFACE)
    target_link_libraries(${name} INTERFACE switchyard_flags ${arg_LINK})
  endif()
endfunction()

# switchyard_program(NAME LINK target… FILES file…): a program that `cmake --install` puts into bin/.
function(switchyard_program name)
  cmake_parse_arguments(arg "" "" "LINK;FILES" ${ARGN})
  add_executable(${name} ${arg_FILES})
  target_link_libraries(${name} PRIVATE switchyard_flags ${arg_LINK})
  install(TARGETS ${name} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endfunction()

# switchyard_unit(NAME LABEL [TIMEOUT seconds] LINK target… FILES file…): a cmocka program, run by ctest as LABEL.NAME. Where tests/run has
# made a build with sanitizers (SANITIZED_BUILD), its program is the one that runs; numeric ones run from both builds, since optimised code
# is what users get.
set(SANITIZED_BUILD "" CACHE PATH "folder of a build with sanitizers, whose test programs ctest should run")
function(switchyard_unit name label)
  cmake_parse_arguments(arg "" "TIMEOUT" "LINK;FILES" ${ARGN})
  if(NOT CMOCKA_FOUND)
    return()
  endif()
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 120)
  endif()
  if(NOT SANITIZED_BUILD OR NOT label STREQUAL unit)
    add_executable(test_${name} ${arg_FILES})
    target_link_libraries(test_${name} PRIVATE switchyard_flags ${arg_LINK} PkgConfig::CMOCKA)
    switchyard_add_test(${label}.${name} ${label} ${arg_TIMEOUT} test_${name})
  endif()
  if(SANITIZED_BUILD)
    switchyard_add_test(${label}.${name}.sanitized ${label} ${arg_TIMEOUT} ${SANITIZED_BUILD}/bin/test_${name})
  endif()
endfunction()

# Every test finds the source tree in $SWITCHYARD_SOURCE, the programs in $SWITCHYARD_BIN and the build in $SWITCHYARD_BUILD.
function(switchyard_add_test name label timeout)
  add_test(NAME ${name} COMMAND ${ARGN} WORKING_DIRECTORY ${CMAKE_SOURCE_DIR})
  set_tests_properties(${name} PROPERTIES LABELS ${label} TIMEOUT ${timeout} SKIP_RETURN_CODE 77
    ENVIRONMENT "SWITCHYARD_SOURCE=${CMAKE_SOURCE_DIR};SWITCHYARD_BIN=${CMAKE_BINARY_DIR}/bin;SWITCHYARD_BUILD=${CMAKE_BINARY_DIR}")
endfunction()

# switchyard_script(NAME LABEL [TIMEOUT seconds] COMMAND word…): a script that drives the real programs, run by ctest as LABEL.NAME. Exit
# code 77 means skipped, and ctest counts it as such.
function(switchyard_script name label)
  cmake_parse_arguments(arg "" "TIMEOUT" "COMMAND" ${ARGN})
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 300)
  endif()
  switchyard_add_test(${label}.${name} ${label} ${arg_TIMEOUT} ${arg_COMMAND})
endfunction()

# What was found and what was not, in one place at the end of configuring.
function(switchyard_summary)
  find_program(NVCC nvcc HINTS /usr/local/cuda/bin)
  get_filename_component(cuda "${NVCC}" REALPATH)
  find_library(NCCL_LIBRARY nccl HINTS "${cuda}/../../lib" "${cuda}/../../lib64")
  message(STATUS "switchyard ${PROJECT_VERSION}: MPI ${MPI_C_VERSION}, OpenMP ${OpenMP_C_VERSION}")
  switchyard_report("CUDA compiler" "${NVCC}")
  switchyard_report("NCCL" "${NCCL_LIBRARY}")
  switchyard_report("cmocka, for the C tests" "${CMOCKA_LIBRARIES}")
endfunction()

function(switchyard_report what found)
  if(found)
    message(STATUS "  ${what}: found")
  else()
    message(STATUS "  ${what}: absent, not required")
  endif()
endfunction()

# switchyard_embed_text(VARIABLE FILE SYMBOL): a C file made at build time that defines `const char SYMBOL[]` with FILE's text; its path goes
# to VARIABLE, for a library's FILES.
function(switchyard_embed_text variable file symbol)
  get_filename_component(input ${file} ABSOLUTE)
  set(output ${CMAKE_CURRENT_BINARY_DIR}/${symbol}.c)
  add_custom_command(OUTPUT ${output} DEPENDS ${input} ${CMAKE_SOURCE_DIR}/cmake/embed_text.cmake
    COMMAND ${CMAKE_COMMAND} -DINPUT=${input} -DOUTPUT=${output} -DNAME=${symbol} -P ${CMAKE_SOURCE_DIR}/cmake/embed_text.cmake VERBATIM)
  set(${variable} ${output} PARENT_SCOPE)
endfunction()
