# nibble_fetch(VARIABLE NAME URL SHA256 ARCHIVE FOLDER ...): downloads an archive that no Debian package has, pinned by its
# hash, and unpacks it into FOLDER; the rest of the arguments go to file(ARCHIVE_EXTRACT). VARIABLE is the
# setting with which a user names an unpacked copy instead.
function(nibble_fetch variable name url sha256 archive folder)
  message(STATUS "fetching ${url}")
  file(DOWNLOAD ${url} ${archive} EXPECTED_HASH SHA256=${sha256} STATUS status INACTIVITY_TIMEOUT 60)
  list(GET status 0 code)
  if(NOT code EQUAL 0)
    message(FATAL_ERROR "cannot fetch ${name}: ${status}. Unpack it yourself (sha256 ${sha256}) and set "
                        "-D${variable}=FOLDER.")
  endif()
  file(ARCHIVE_EXTRACT INPUT ${archive} DESTINATION ${folder} ${ARGN})
endfunction()
