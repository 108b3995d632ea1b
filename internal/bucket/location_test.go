package bucket_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/barista-fleet/barista/internal/bucket"
)

func TestParseURL(t *testing.T) {
	for _, c := range []struct {
		raw    string
		want   bucket.Location
		string string // the canonical form; raw when empty
	}{
		{"file:///var/fleet", bucket.Location{Kind: bucket.KindFile, Dir: "/var/fleet"}, ""},
		{"file:///var//fleet/", bucket.Location{Kind: bucket.KindFile, Dir: "/var/fleet"}, "file:///var/fleet"},
		{"file://localhost/var/fleet", bucket.Location{Kind: bucket.KindFile, Dir: "/var/fleet"}, "file:///var/fleet"},
		{"file:///with%20space", bucket.Location{Kind: bucket.KindFile, Dir: "/with space"}, ""},
		{"s3://my-fleet", bucket.Location{Kind: bucket.KindS3, Bucket: "my-fleet"}, ""},
		{"s3://my-fleet/", bucket.Location{Kind: bucket.KindS3, Bucket: "my-fleet"}, "s3://my-fleet"},
		{
			"s3://my-fleet/a/b/?region=eu-west-1",
			bucket.Location{Kind: bucket.KindS3, Bucket: "my-fleet", Prefix: "a/b", Region: "eu-west-1"},
			"s3://my-fleet/a/b?region=eu-west-1",
		},
		{
			"s3://my-fleet?path_style=true",
			bucket.Location{Kind: bucket.KindS3, Bucket: "my-fleet", PathStyle: true},
			"",
		},
		{
			"s3://my-fleet?endpoint=http://127.0.0.1:9000/",
			bucket.Location{Kind: bucket.KindS3, Bucket: "my-fleet", Endpoint: "http://127.0.0.1:9000", Region: "us-east-1", PathStyle: true},
			"s3://my-fleet?endpoint=http://127.0.0.1:9000&region=us-east-1",
		},
		{
			"s3://my-fleet/p?endpoint=https%3A%2F%2Fs3.example.org&region=garage&path_style=false",
			bucket.Location{Kind: bucket.KindS3, Bucket: "my-fleet", Prefix: "p", Endpoint: "https://s3.example.org", Region: "garage"},
			"s3://my-fleet/p?endpoint=https://s3.example.org&region=garage&path_style=false",
		},
		{
			"s3://my-fleet?endpoint=http://[::1]:9000",
			bucket.Location{Kind: bucket.KindS3, Bucket: "my-fleet", Endpoint: "http://[::1]:9000", Region: "us-east-1", PathStyle: true},
			"s3://my-fleet?endpoint=http://[::1]:9000&region=us-east-1",
		},
		{
			"https://0123abc.r2.cloudflarestorage.com/my-fleet",
			bucket.Location{Kind: bucket.KindS3, Bucket: "my-fleet", Endpoint: "https://0123abc.r2.cloudflarestorage.com", Region: "us-east-1", PathStyle: true},
			"s3://my-fleet?endpoint=https://0123abc.r2.cloudflarestorage.com&region=us-east-1",
		},
		{
			"https://s3.example.org:8443/my-fleet/team/one",
			bucket.Location{Kind: bucket.KindS3, Bucket: "my-fleet", Prefix: "team/one", Endpoint: "https://s3.example.org:8443", Region: "us-east-1", PathStyle: true},
			"s3://my-fleet/team/one?endpoint=https://s3.example.org:8443&region=us-east-1",
		},
	} {
		got, err := bucket.ParseURL(c.raw)
		if err != nil {
			t.Errorf("%s: %v", c.raw, err)
			continue
		}
		if got != c.want {
			t.Errorf("%s:\n %+v, want\n %+v", c.raw, got, c.want)
		}
		want := c.string
		if want == "" {
			want = c.raw
		}
		if got.String() != want {
			t.Errorf("%s: canonical %s, want %s", c.raw, got, want)
		}
		if again, err := bucket.ParseURL(got.String()); err != nil || again != got {
			t.Errorf("%s: canonical form %s reads as %+v, error %v", c.raw, got, again, err)
		}
	}
}

func TestParseURLErrors(t *testing.T) {
	for raw, hint := range map[string]string{
		"":                                       "s3://BUCKET",
		"my-fleet":                               "type s3://my-fleet",
		"/var/fleet":                             "type file:///var/fleet",
		"file://var/fleet":                       "file:///var/fleet",
		"file:relative":                          "file:///DIRECTORY",
		"file://":                                "file:///DIRECTORY",
		"file:///":                               "file:///DIRECTORY",
		"file:///a?region=x":                     "drop everything",
		"file:///a#b":                            "s3://BUCKET",
		"gs://my-fleet":                          "s3://BUCKET",
		"s3://":                                  "s3://BUCKET",
		"s3:///prefix":                           "s3://BUCKET",
		"s3://127.0.0.1:9000/my-fleet":           "s3://BUCKET?endpoint=https://127.0.0.1:9000",
		"s3://My_Fleet":                          "3 to 63",
		"s3://ab":                                "3 to 63",
		"s3://a..b":                              "3 to 63",
		"s3://my-fleet/a//b":                     "prefix",
		"s3://my-fleet/a b":                      "prefix",
		"s3://my-fleet/..":                       "prefix",
		"s3://my-fleet?endpont=https://x":        "endpoint, region and path_style",
		"s3://my-fleet?endpoint=x.example.org":   "endpoint=https://",
		"s3://my-fleet?endpoint=https://x/y":     "endpoint=https://",
		"s3://my-fleet?endpoint=https://":        "endpoint=https://",
		"s3://my-fleet?endpoint=ftp://x":         "endpoint=https://",
		"s3://my-fleet?region=a&region=b":        "once",
		"s3://my-fleet?region=":                  "eu-west-1",
		"s3://my-fleet?region=a%20b":             "eu-west-1",
		"s3://my-fleet?path_style=yes":           "true or false",
		"s3://my-fleet?a;b":                      "s3://BUCKET",
		"https://host":                           "s3://BUCKET",
		"https://host/my-fleet?region=x":         "s3://BUCKET?endpoint=https://host&",
		"https://s3.eu-west-1.amazonaws.com/abc": "s3://abc?region=eu-west-1",
		"https://abc.s3.eu-west-1.amazonaws.com": "s3://abc?region=eu-west-1",
		"https://abc.s3.amazonaws.com/p":         "s3://abc",
		"://x":                                   "s3://BUCKET",
		"s3://my-fleet/%zz":                      "s3://BUCKET",
	} {
		loc, err := bucket.ParseURL(raw)
		if err == nil {
			t.Errorf("%q: %+v, want an error", raw, loc)
			continue
		}
		var typed *bucket.Error
		if !errors.As(err, &typed) || !errors.Is(err, bucket.ErrInvalid) || typed.Op != "url" {
			t.Errorf("%q: error %#v", raw, err)
			continue
		}
		if !strings.Contains(typed.Hint, hint) {
			t.Errorf("%q: hint %q, want %q in it", raw, typed.Hint, hint)
		}
	}
}

func TestParseURLHidesPasswords(t *testing.T) {
	for _, raw := range []string{
		"s3://KEY:hunter2@my-fleet", "https://KEY:hunter2@host/my-fleet", "s3://my-fleet?endpoint=https://KEY:hunter2@host",
		"s3://KEY:hunter2@my fleet/%zz",
	} {
		_, err := bucket.ParseURL(raw)
		if err == nil {
			t.Errorf("%s was accepted", raw)
		} else if strings.Contains(err.Error(), "hunter2") {
			t.Errorf("the error repeats the password: %v", err)
		}
	}
}
