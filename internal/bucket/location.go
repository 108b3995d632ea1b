package bucket

import (
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

// DefaultRegion is the signing region of a store that is named by its
// endpoint: servers other than AWS accept it, whatever they call theirs.
const DefaultRegion = "us-east-1"

// Kind tells the two places where a fleet can be.
type Kind uint8

// The kinds of Location. The zero value is none.
const (
	_ Kind = iota
	// KindS3 is a bucket of an S3-compatible object store.
	KindS3
	// KindFile is a directory on this machine.
	KindFile
)

// Location is a parsed fleet URL. ParseURL makes it; it holds no credentials.
type Location struct {
	Kind Kind

	Dir string // KindFile: the absolute, cleaned directory

	Bucket    string // KindS3: the bucket's name
	Prefix    string // KindS3: what stands before every key, without outer slashes; may be empty
	Endpoint  string // KindS3: scheme://host[:port], or empty for AWS
	Region    string // KindS3: the signing region, or empty for the environment's
	PathStyle bool   // KindS3: the bucket is named in the path, not in the host
}

// String is the canonical URL of the location.
func (l Location) String() string {
	switch l.Kind {
	case KindFile:
		return (&url.URL{Scheme: "file", Path: l.Dir}).String()
	case KindS3:
		u := url.URL{Scheme: "s3", Host: l.Bucket}
		if l.Prefix != "" {
			u.Path = "/" + l.Prefix
		}
		var query []string
		if l.Endpoint != "" {
			query = append(query, "endpoint="+l.Endpoint)
		}
		if l.Region != "" {
			query = append(query, "region="+l.Region)
		}
		if l.PathStyle != (l.Endpoint != "") {
			query = append(query, "path_style="+strconv.FormatBool(l.PathStyle))
		}
		u.RawQuery = strings.Join(query, "&")
		return u.String()
	default:
		return "no location"
	}
}

const urlForms = "s3://BUCKET[/PREFIX][?endpoint=https://HOST[:PORT]&region=REGION&path_style=true], https://HOST/BUCKET[/PREFIX] or file:///DIRECTORY"

// ParseURL reads the URL of a fleet's bucket. Its errors are *Error with a hint
// that says what to type.
func ParseURL(raw string) (Location, error) {
	if raw == "" {
		return Location{}, badURL(raw, "it is empty", "type "+urlForms)
	}
	u, err := url.Parse(raw)
	if err != nil {
		if ue, ok := errors.AsType[*url.Error](err); ok {
			err = ue.Err // without the URL, which may hold a password
		}
		return Location{}, badURL(raw, err.Error(), "type "+urlForms)
	}
	if u.User != nil {
		return Location{}, badURL(raw, "it holds a user name or a password",
			"keep credentials out of the URL: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE")
	}
	if u.Fragment != "" {
		return Location{}, badURL(raw, "it has a #fragment", "type "+urlForms)
	}
	switch u.Scheme {
	case "file":
		return parseFile(raw, u)
	case "s3":
		return parseS3(raw, u)
	case "http", "https":
		return parseVendor(raw, u)
	case "":
		if strings.HasPrefix(raw, "/") {
			return Location{}, badURL(raw, "it has no scheme", "for a directory, type file://"+raw)
		}
		return Location{}, badURL(raw, "it has no scheme", "for a bucket, type s3://"+raw)
	default:
		return Location{}, badURL(raw, fmt.Sprintf("scheme %q is not one of s3, https, http, file", u.Scheme), "type "+urlForms)
	}
}

func parseFile(raw string, u *url.URL) (Location, error) {
	switch {
	case u.Host != "" && u.Host != "localhost":
		return Location{}, badURL(raw, fmt.Sprintf("%q stands where a host does", u.Host),
			"a directory is written with three slashes: file:///"+strings.TrimPrefix(u.Host+u.Path, "/"))
	case u.RawQuery != "":
		return Location{}, badURL(raw, "a directory takes no options", "drop everything from the ? on")
	case !filepath.IsAbs(u.Path):
		return Location{}, badURL(raw, "it names no absolute directory", "type file:///DIRECTORY")
	}
	dir := filepath.Clean(u.Path)
	if dir == "/" {
		return Location{}, badURL(raw, "the root directory cannot be a bucket", "type file:///DIRECTORY")
	}
	if strings.ContainsRune(dir, 0) {
		return Location{}, badURL(raw, "it holds a zero byte", "type file:///DIRECTORY")
	}
	return Location{Kind: KindFile, Dir: dir}, nil
}

func parseS3(raw string, u *url.URL) (Location, error) {
	if u.Port() != "" {
		return Location{}, badURL(raw, "a bucket has no port",
			fmt.Sprintf("a server of your own is named by its endpoint: s3://BUCKET?endpoint=https://%s", u.Host))
	}
	loc := Location{Kind: KindS3, Bucket: u.Host}
	pathStyle := ""
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return Location{}, badURL(raw, err.Error(), "type "+urlForms)
	}
	for name, values := range query {
		if len(values) != 1 {
			return Location{}, badURL(raw, fmt.Sprintf("option %q is given %d times", name, len(values)), "give it once")
		}
		switch name {
		case "endpoint":
			loc.Endpoint, err = parseEndpoint(values[0])
			if err != nil {
				return Location{}, badURL(raw, err.Error(), "type endpoint=https://HOST[:PORT]")
			}
		case "region":
			if !regionName.MatchString(values[0]) {
				return Location{}, badURL(raw, fmt.Sprintf("region is %q", values[0]), "a region looks like eu-west-1")
			}
			loc.Region = values[0]
		case "path_style":
			pathStyle = values[0]
		default:
			return Location{}, badURL(raw, fmt.Sprintf("option %q is not known", name), "the options are endpoint, region and path_style")
		}
	}
	if loc.Endpoint != "" {
		loc.PathStyle = true
		if loc.Region == "" {
			loc.Region = DefaultRegion
		}
	}
	switch pathStyle {
	case "":
	case "true", "false":
		loc.PathStyle = pathStyle == "true"
	default:
		return Location{}, badURL(raw, fmt.Sprintf("path_style is %q", pathStyle), "it is true or false")
	}
	return finishS3(raw, loc, u.Path)
}

var regionName = regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9_-]*$`)

// awsHost matches the hosts of AWS itself: [bucket.]s3[.-]region.amazonaws.com.
var awsHost = regexp.MustCompile(`^(?:(.+)\.)?s3(?:[.-]([a-z0-9-]+))?\.amazonaws\.com(?:\.cn)?$`)

// parseVendor reads the form in which vendors print a bucket's address:
// https://host/bucket[/prefix].
func parseVendor(raw string, u *url.URL) (Location, error) {
	if m := awsHost.FindStringSubmatch(u.Hostname()); m != nil {
		name, region := m[1], m[2]
		if name == "" {
			name, _, _ = strings.Cut(strings.Trim(u.Path, "/"), "/")
		}
		hint := "s3://" + name
		if region != "" {
			hint += "?region=" + region
		}
		return Location{}, badURL(raw, "AWS buckets are named by bucket and region", "type "+hint)
	}
	if u.RawQuery != "" {
		return Location{}, badURL(raw, "this form takes no options",
			fmt.Sprintf("to give options, type s3://BUCKET?endpoint=%s://%s&…", u.Scheme, u.Host))
	}
	endpoint, err := parseEndpoint(u.Scheme + "://" + u.Host)
	if err != nil {
		return Location{}, badURL(raw, err.Error(), "type https://HOST/BUCKET")
	}
	name, prefix, _ := strings.Cut(strings.TrimPrefix(u.Path, "/"), "/")
	loc := Location{Kind: KindS3, Bucket: name, Endpoint: endpoint, Region: DefaultRegion, PathStyle: true}
	return finishS3(raw, loc, prefix)
}

func parseEndpoint(s string) (string, error) {
	u, err := url.Parse(s)
	if err != nil {
		return "", errors.New("the endpoint is not a URL")
	}
	switch {
	case u.Scheme != "https" && u.Scheme != "http":
		return "", errors.New("the endpoint does not start with https:// or http://")
	case u.Hostname() == "":
		return "", errors.New("the endpoint names no host")
	case u.User != nil:
		return "", errors.New("the endpoint holds a user name or a password")
	case strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.Fragment != "":
		return "", errors.New("the endpoint has more than a scheme, a host and a port")
	}
	return u.Scheme + "://" + u.Host, nil
}

// bucketName is the rule of AWS, which all S3-compatible stores keep.
var bucketName = regexp.MustCompile(`^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$`)

func finishS3(raw string, loc Location, prefix string) (Location, error) {
	if loc.Bucket == "" {
		return Location{}, badURL(raw, "it names no bucket", "type "+urlForms)
	}
	if !bucketName.MatchString(loc.Bucket) || strings.Contains(loc.Bucket, "..") {
		return Location{}, badURL(raw, fmt.Sprintf("%q is no bucket name", loc.Bucket),
			"a bucket name has 3 to 63 of a-z 0-9 . - and starts and ends with a letter or a digit")
	}
	loc.Prefix = strings.Trim(prefix, "/")
	if loc.Prefix != "" {
		if err := CheckKey(loc.Prefix); err != nil {
			return Location{}, badURL(raw, fmt.Sprintf("%q is no prefix", loc.Prefix),
				fmt.Sprintf("a prefix has at most %d of A-Z a-z 0-9 . _ = - in parts separated by single slashes", MaxKey))
		}
	}
	return loc, nil
}

// badURL does not repeat a URL that holds a password.
func badURL(raw, why, hint string) error {
	if strings.Contains(raw, "@") {
		raw = "(not shown)"
	}
	return &Error{Op: "url", Key: raw, Kind: ErrInvalid, Err: errors.New(why), Hint: hint}
}
