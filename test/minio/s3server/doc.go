// Package s3server starts a real S3 server for a test. It chooses, in order:
//
//	BARISTA_TEST_S3_ENDPOINT   a server that runs already, as http://127.0.0.1:9000, with
//	                           BARISTA_TEST_S3_ACCESS_KEY and BARISTA_TEST_S3_SECRET_KEY;
//	                           BARISTA_TEST_S3_KIND names it (minio, versitygw, …)
//	MINIO_BIN                  a minio binary
//	VERSITYGW_BIN              a versitygw binary
//	otherwise                  versitygw, built once at the version that test/minio/tools/go.mod pins,
//	                           and kept in .cache of this repository
//
// A server that was started listens on the loopback address only, keeps its
// data in the test's temporary directory and ends with the test. Where none can
// be had, the test fails if CI=true, and is skipped with a line that says so
// otherwise.
package s3server
